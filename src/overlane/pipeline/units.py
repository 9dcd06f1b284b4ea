"""Time units and window lengths of the tables."""

SECOND_NS = 1_000_000_000
MINUTE_S = 60
CHUNK_S = 300
"""Length of a row of `load_series`."""
WINDOW_S = 900
"""Resolution of loads and peaks."""
HOUR_S = 3_600
