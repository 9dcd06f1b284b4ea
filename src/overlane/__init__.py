"""Overlane: publish/subscribe messaging across wide areas, within each topic's deadline."""

__all__ = ["__version__"]

__version__ = "0.1.0"
