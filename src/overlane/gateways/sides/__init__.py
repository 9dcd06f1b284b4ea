"""Sides of a gateway: the connection to a broker, one module for each technology. They decide only how to connect."""

__all__ = ["side"]
