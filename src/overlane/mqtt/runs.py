"""Runs: plain PUBLISH packets that the overlay carries as the bytes they came as (`fast_path`).

flags   bit 4 a run | bit 5 of MQTT 5
        bit 6 a run of one short packet, of which only the payload is carried: the rest follows from the topic
run     number of messages u32 | their PUBLISH packets as a client sent them, all plain and of one topic
"""

RUN = 0x10
RUN_OF_V5 = 0x20
LONE = 0x40

PACKET_BYTES_MIN = 5
"""No PUBLISH packet is shorter: a run of so many bytes has at most so many of them, whatever it says."""


def pack_run(run: bytes, count: int, is_v5: bool) -> tuple[int, bytes]:
    return RUN | (RUN_OF_V5 if is_v5 else 0), count.to_bytes(4) + run


def pack_lone(payload: bytes, is_v5: bool) -> tuple[int, bytes]:
    return LONE | RUN_OF_V5 if is_v5 else LONE, payload


def unpack_run(flags: int, body: bytes) -> tuple[bytes, int, bool]:
    """The packets, how many they are, and whether they are of MQTT 5."""
    return body[4:], int.from_bytes(body[:4]), bool(flags & RUN_OF_V5)


def count(flags: int, body: bytes) -> int:
    """How many messages a body of the overlay holds, or says to hold where so many can be in it."""
    if not flags & RUN:
        return 1
    return max(1, min(int.from_bytes(body[:4]), (len(body) - 4) // PACKET_BYTES_MIN))


def size_of_run(flags: int, body: bytes) -> tuple[int, int]:
    """How many messages it holds, or says to hold where so many can be in it; and the bytes of their payloads, as if
    all had heads as long as the first: where some are short and some long, a byte more or less for each."""
    run_bytes = max(0, len(body) - 4)
    messages = count(RUN, body)
    topic_at = 7 if body[5:6] > b"\x7f" else 6
    head_bytes = topic_at - 2 + int.from_bytes(body[topic_at : topic_at + 2]) + bool(flags & RUN_OF_V5)
    return messages, max(0, run_bytes - messages * head_bytes)
