"""Brokers whose records are on several hosts, and whose name another host can continue. Imported only where there is
`[recovery]`.

storage            one database with a copy of a broker's records
replica_driver     the replica (`overlane.recovery`) in an event loop, with a disk, a transport and ZooKeeper
replicated_store   the store of a broker over it
directory          what hosts of a domain tell each other through ZooKeeper
replication        connections between the hosts of a broker (`replication_link`), and questions of neighbours (`heard`)
replication_pace   how much of a line whose rate is known they take
own_endpoint       where this process is reached for it, also when the machine has moved
primary_watch      a mirror dials its primary, and tells when it is lost
hosted, children   a broker of another host: where it listens, its process
lines              whether a broker is reached, and how much of a line copies may take
host_view          what people see of a process with one storage
hosting            a process with one storage: a mirror, or the broker
measuring          what a host measures of itself, for its score
certified          which brokers a host may continue, by its certificate
takeover_hook      the operator's command, run when a broker was continued
waiting_page       the admin API of a broker that another host serves
"""

__all__ = ["hosting"]
