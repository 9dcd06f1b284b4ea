"""The spans of time that the tables are made of."""

SECOND_NS = 1_000_000_000
MINUTE_S = 60
CHUNK_S = 300
"""How much of a topic's rates makes a row of `load_series`."""
WINDOW_S = 900
"""Loads are told by quarter hours, and peaks are made of them."""
HOUR_S = 3_600
