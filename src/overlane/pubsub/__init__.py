"""Parts shared by all client protocols: sessions, subscriptions, retained messages, delivery, wills, access, streams.

State machines without I/O: messages, requests and the time go in, records and messages for consumers come out.
"""

__all__ = [
    "access",
    "backpressure",
    "cluster",
    "connection",
    "consumer",
    "counters",
    "delivery",
    "limits",
    "mediating",
    "message",
    "message_ids",
    "mirrored",
    "notices",
    "policies",
    "properties",
    "protocol",
    "publishing",
    "questions",
    "record_kinds",
    "refused",
    "reservations",
    "service",
    "sessions",
    "state",
    "streams",
    "subscriptions",
    "suspects",
    "timers",
]
