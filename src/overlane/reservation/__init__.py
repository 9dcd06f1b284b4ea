"""Reservations made in the network: RSVP between brokers, admission by links, paths that admit; pure."""

__all__ = ["agent", "contract", "flowspecs", "link_ledger", "rsvp", "soft_state"]
