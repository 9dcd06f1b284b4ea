"""Hosts of a domain: what they tell each other, which have copies, who watches, and who continues a broker."""

__all__ = ["host_knowledge", "host_records", "placement", "questions", "scoring", "succession", "watching"]
