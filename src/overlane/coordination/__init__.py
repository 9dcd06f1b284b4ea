"""Coordination: what brokers agree on through ZooKeeper. Pure decisions, and a thin driver.

    contract     what a coordination service is asked, and what it answers: requests, answers and events as values
    znodes       a tree of znodes with versions, ephemerals, watches and transactions, pure: the service of tests and
                 of the simulator
    zookeeper    the driver: requests become calls of kazoo, and its callbacks events
    ensemble/    ZooKeeper servers that Overlane runs itself on one machine

The overlay's core knows nothing of it. A broker without `[coordination]` does not import it.
"""
