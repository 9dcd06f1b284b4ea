"""Reservations as clients ask for them: profiles that publishers advertise, and subscribers that ask for a rate."""

__all__ = ["advertisement", "advertising", "network", "request", "reserving", "service", "verdict"]
