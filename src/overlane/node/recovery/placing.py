"""Which hosts have copies, as ZooKeeper and the replica see it: what the primary of a broker publishes, and what a host
makes of what others have published.

While this process is the primary, it chooses the hosts (`recovery.placement`), publishes them, tells its replica, and
hands the broker over where an operator wants it.
"""

import logging
from collections.abc import Callable

from overlane.coordination.records import MalformedRecord, Role
from overlane.node.recovery.directory import Directory
from overlane.node.recovery.host_options import HostOptions
from overlane.node.recovery.hosted import Hosted
from overlane.recovery.events import Event, HandOver, MirrorsWanted
from overlane.recovery.host_records import MirrorsRecord, decode_record, encode_record
from overlane.recovery.placement import choose_mirrors
from overlane.recovery.replica import Replica

log = logging.getLogger("overlane.recovery")


class Placing:
    def __init__(
        self, options: HostOptions, directory: Directory, replica: Replica, tell_replica: Callable[[Event], None]
    ) -> None:
        self._options = options
        self._directory = directory
        self._replica = replica
        self._tell_replica = tell_replica
        self._chosen: tuple[int, tuple[str, ...]] | None = None
        """Epoch and hosts, as they were published last."""
        self._told_move = ""

    def look(self, epoch: int) -> None:
        """Something may have changed; `epoch`: in which this process is the primary."""
        replica, directory, options = self._replica, self._directory, self._options
        value = replica.replica_set
        if not replica.is_primary or not directory.is_complete or value is None:
            return
        present = {copy.host for copy in value.in_sync} | set(self._chosen[1] if self._chosen else ())
        move = directory.moves.get(options.name, "")
        count = options.network.recovery.mirrors
        hosts = choose_mirrors(options.name, count, directory.hosts, present, options.host, move)
        if self._chosen != (epoch, hosts):
            self._chosen = epoch, hosts
            self._publish(epoch, hosts)
        if move == options.host:
            directory.move_done(options.name)
        elif move:
            self._hand_over(move, is_known=move in directory.hosts)

    def _publish(self, epoch: int, hosts: tuple[str, ...]) -> None:
        role, listeners = self._options.role_and_listeners
        record = MirrorsRecord(epoch, self._options.host, hosts, _role(role), listeners)

        def may_replace(data: bytes) -> bool:
            try:
                return decode_record(self._options.name, data, MirrorsRecord).epoch <= epoch
            except MalformedRecord:
                return True

        self._directory.publish_mirrors(self._options.name, encode_record(record), may_replace)
        self._tell_replica(MirrorsWanted(frozenset(hosts)))

    def _hand_over(self, host: str, *, is_known: bool) -> None:
        if self._told_move != host:
            self._told_move = host
            told = "%s is to move to %s" if is_known else "%s is to move to %s, which is not there: it waits"
            log.info(told, self._options.name, host)
        self._tell_replica(HandOver(host))


def wanted_here(options: HostOptions, directory: Directory, zookeeper: str) -> frozenset[Hosted]:
    """The brokers of others that this host has to have a process for: a mirror, or the broker itself."""
    return frozenset(
        Hosted(name, record.role, options.domain, record.listeners or ("mqtt",), zookeeper)
        for name, record in directory.mirrors.items()
        if name != options.host and (options.host in record.hosts or options.host == record.primary)
    )


def _role(role: str) -> Role:
    match role:
        case "edge" | "routing" | "backup" | "plain":
            return role
        case _:
            raise ValueError(f"no role: {role}")
