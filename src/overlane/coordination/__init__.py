"""Coordination: what brokers agree on through ZooKeeper. Pure decisions, and a thin driver.

    contract     what a coordination service is asked, and what it answers: requests, answers and events as values
    znodes       a tree of znodes with versions, ephemerals, watches and transactions, pure: the service of tests and
                 of the simulator
    follower     a copy of znodes, kept up to date
    participant  a broker's part: registration, members, election; `leader` decides, `leading` writes what was decided
    view         what a broker makes of it; `topology`: its links; `reachability`: which of them it misses
    zookeeper    the driver: requests become calls of kazoo, and its callbacks events
    client       for commands: one connection, answers that are awaited; `reading` and `config_store` use it
    ensemble/    ZooKeeper servers that Overlane runs itself on one machine

The overlay's core knows nothing of it. A broker without `[coordination]` does not import it.
"""

__all__ = [
    "access",
    "assignment",
    "client",
    "config_store",
    "contract",
    "ensemble",
    "follower",
    "launching",
    "leader",
    "participant",
    "reachability",
    "reading",
    "records",
    "view",
    "znodes",
    "zookeeper",
]
