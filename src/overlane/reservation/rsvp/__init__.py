"""RSVP as bytes: objects and messages of RFC 2205, 2209 and 2210, and packet captures of them; pure."""

__all__ = ["intserv", "messages", "objects", "pcap"]
