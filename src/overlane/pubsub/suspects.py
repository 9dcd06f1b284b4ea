"""Suspects: messages that have ended the process.

An internal error in the middle of a message, which must reach all of its receivers once, ends the process: the sender
sends the message again after the restart. If the message itself is the cause, this would repeat forever. So a digest of
the message is stored when it ends the process, and the message is refused once it has done so twice.
"""

from hashlib import sha256

ENDINGS_MAX = 2
"""So often a message may end the process before it is refused: the first time it may not have been its fault."""


def suspect_of(source: str, packet_id: int, topic: str, payload: bytes) -> str:
    """Digest of a message: its sender, its packet identifier (0 if it has none) and its content."""
    head = f"{source}\0{packet_id}\0{topic}\0".encode("utf-8", "replace")
    return sha256(head + payload).hexdigest()[:32]
