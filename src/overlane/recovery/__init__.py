"""Recovery: copies of a broker's durable records on other hosts, and the choice of the host that takes over. Pure.

    replica                  one host's part of one broker: `mirror`, `claim` or `primary`, and the way between them
    replica_set, register    which storages have everything: a znode that only compare-and-set changes
    claim                    from the decision to serve to serving
    events                   events, effects and settings of the machines
    replication/             what a primary and its mirrors know, decide and send: log, frames, lease, what is durable
    hosts/                   what hosts tell each other, which should have copies, who is silent, and who continues

The protocol and its invariants are in decision 28; `node/recovery` drives it in brokers (decision 29).
"""

__all__ = ["events", "hosts", "replica", "replica_set", "replication"]
