"""Reservations made in the network: RSVP between brokers, admission by links, routes that admit; pure."""

__all__ = ["rsvp"]
