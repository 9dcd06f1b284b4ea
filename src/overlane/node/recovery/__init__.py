"""Brokers whose records are on several hosts, and whose name another host can continue. Imported only where there is
`[recovery]`.

hosting            a process with one storage: a mirror, or the broker
hosted, children   a broker of another host: where it listens, its process
host_options       which host a process is of, and which replica it runs
host_view          what people see of a process with one storage
certified          which brokers a host may continue, by its certificate
takeover_hook      the operator's command, run when a broker was continued
waiting_page       the admin API of a broker that another host serves
replication/       the replica (`overlane.recovery`) in an event loop, its disk, connections between hosts, their pace
hosts/             what hosts tell each other through ZooKeeper, distances, lines, scores, and the watch over a primary
"""

__all__ = ["hosting"]
