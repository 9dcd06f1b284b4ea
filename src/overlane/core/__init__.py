"""The overlay's broker as a pure state machine: no sockets, clock, threads, files, nor randomness of its own.

At the top is the contract: `broker` (the state machine), `events` (what goes in and out), `config`, and the values that
they are made of. The rooms are `wire` (bytes), `links` (one link to a neighbour), `gossip` (what all brokers know),
`routing` (routes, and parcels on them) and `flows` (messages end to end). Each room uses the contract and the rooms
before it. `frame_dispatch` and `link_supervisor` join them, for `broker` alone.

`__all__` lists the modules that other parts of the package may import, here and in each room.
"""

__all__ = [
    "broker",
    "bundles",
    "config",
    "events",
    "federation",
    "flows",
    "gossip",
    "limits",
    "links",
    "qos",
    "record_kinds",
    "records",
    "requirements",
    "routing",
    "topic_cache",
    "topics",
    "units",
    "wire",
]
