"""Forwarding of parcels: along routes, around broken links, and never twice."""

__all__: list[str] = []
