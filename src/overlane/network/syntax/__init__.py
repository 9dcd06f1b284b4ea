"""Values of a network file while it is read: tables, kinds of values, and line numbers for errors."""

__all__ = ["code_points", "kinds"]
