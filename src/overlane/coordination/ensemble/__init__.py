"""ZooKeeper servers that Overlane runs itself, all on one machine: for trying out, tests, and small sites.

    java       the Java program and the jars that a server needs, and what is said where they are missing
    layout     the folder of an ensemble: addresses that stay, configuration files, pure
    running    the servers as processes: started, watched, started again, stopped

In production give `zookeeper` the addresses of an ensemble on three machines instead.
"""

__all__ = ["java", "layout", "running"]
