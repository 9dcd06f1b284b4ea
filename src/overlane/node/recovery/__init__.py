"""Brokers whose records are on several hosts, and whose name another host can continue. Imported only where there is
`[recovery]`.

storage            one database with a copy of a broker's records
replica_driver     the replica (`overlane.recovery`) in an event loop, with a disk, a transport and ZooKeeper
replicated_store   the store of a broker over it
"""

__all__: list[str] = []
