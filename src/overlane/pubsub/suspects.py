"""Suspects: messages that have ended the process.

A fault of ours that is met halfway through a message, where it must reach all of its receivers once, ends the process:
whoever sent the message sends it again after the restart. If the fault is in what the message is, and not in what the
broker was doing, that would go on for ever. So the message is remembered, by a digest, when it ends the process, and
refused once it has done so twice.
"""

from hashlib import sha256

ENDINGS_MAX = 2
"""So often a message may end the process before it is refused: the first time it may not have been its fault."""


def suspect_of(source: str, packet_id: int, topic: str, payload: bytes) -> str:
    """What tells a message from others: whose it is, its packet identifier (0 if it has none) and its content."""
    head = f"{source}\0{packet_id}\0{topic}\0".encode("utf-8", "replace")
    return sha256(head + payload).hexdigest()[:32]
