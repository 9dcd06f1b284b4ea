"""The tables of a network file: a module for each reads it, and writes it where that is not plain."""

__all__ = ["coordinated", "gateways", "mediation", "names", "reservations"]
