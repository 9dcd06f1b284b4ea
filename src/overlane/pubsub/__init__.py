"""Parts shared by all client protocols: sessions, subscriptions, retained messages, delivery, wills, access, streams.

State machines without I/O: messages, requests and the time go in, records and messages for consumers come out.
"""

__all__ = [
    "access",
    "cluster",
    "contract",
    "counters",
    "delivery",
    "limits",
    "message",
    "notices",
    "policies",
    "properties",
    "publishing",
    "record_kinds",
    "reservations",
    "service",
    "sessions",
    "state",
    "streams",
    "subscriptions",
    "suspects",
    "timers",
]
