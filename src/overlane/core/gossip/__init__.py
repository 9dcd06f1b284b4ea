"""What all brokers know of each other: links, the network map, interest, incarnations, and how this spreads."""

__all__ = ["incarnation", "incarnation_proofs", "interest"]
