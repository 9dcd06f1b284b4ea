"""Recovery: copies of a broker's durable records on other hosts, and which host continues the broker. Pure.

    replica_set, register    which storages have everything: a znode that only compare-and-set changes
    frames, fragments        replication between hosts, as values and as bytes
    events                   events, effects and settings of the machines
    replica                  one host's part of one broker: `mirror`, `claim` or `primary`, and the way between them
    batch_log, mirrors, durability, lease    what a primary knows and decides
    host_records             what hosts of a domain tell each other
    placement, host_knowledge    which of them should have copies, and what is known of them
    questions                what neighbours are asked
    watching                 signs of life, silence, and what neighbours say of it
    stored_record            what a storage knows of itself, as a record
    scoring, succession      which candidate is best, and in which order they claim

The protocol and its invariants are in decision 28; `node/recovery` drives it in brokers (decision 29).
"""

__all__ = [
    "durability",
    "events",
    "fragments",
    "frames",
    "host_knowledge",
    "host_records",
    "mirrors",
    "placement",
    "questions",
    "replica",
    "replica_set",
    "scoring",
    "stored_record",
    "succession",
    "watching",
]
