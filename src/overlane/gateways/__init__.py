"""Gateways: processes that join a broker of the overlay and a foreign broker, and pass messages on between them.

`bridge.py` and `lane.py` decide, without I/O. A side is the connection to one broker; each technology has its own.
"""

__all__ = ["dds", "running", "state"]
