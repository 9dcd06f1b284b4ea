"""Which hosts have copies, as ZooKeeper and the replica see it: what the primary of a broker publishes, and what a host
makes of what others have published.

While this process is the primary, it chooses the hosts (`recovery.hosts.placement`), publishes them, tells its replica,
and hands the broker over where an operator wants it. What it knows of hosts comes from the plan in use, from
the file, from what primaries publish, and from its own measurement. A free place waits until the hosts that could have
it are measured, or have not answered.
"""

import logging
from collections.abc import Callable, Collection

from overlane.coordination.records import MalformedRecord, Role
from overlane.core.units import MS, NEVER, Nanos
from overlane.network.plan import Plan
from overlane.node.recovery.host_options import HostOptions
from overlane.node.recovery.hosted import Hosted
from overlane.node.recovery.hosts.directory import HostDirectory
from overlane.node.recovery.hosts.distances import Distances
from overlane.recovery.events import Event, HandOver, MirrorsWanted
from overlane.recovery.hosts.host_knowledge import Presence, load_of, together_of
from overlane.recovery.hosts.host_records import MirrorsRecord, decode_record, encode_record, endpoint_name
from overlane.recovery.hosts.placement import HostStatistics, choose_mirrors, copy_risk, eligible
from overlane.recovery.replica import Replica

log = logging.getLogger("overlane.recovery")


class Placing:
    def __init__(
        self,
        options: HostOptions,
        directory: HostDirectory,
        replica: Replica,
        tell_replica: Callable[[Event], None],
        distances: Distances,
        now: Callable[[], Nanos],
    ) -> None:
        self._options = options
        self._distances = distances
        self._now = now
        self._presence = Presence()
        self._plan: Plan | None = None
        recovery = options.network.recovery
        self._named = next((one.hosts for one in recovery.brokers if one.name == options.name), ())
        """By the file: where copies may be."""
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
        self._presence.noted(directory.hosts, self._now())
        present = {copy.host for copy in value.in_sync} | set(self._chosen[1] if self._chosen else ())
        move = directory.moves.get(options.name, "")
        if self._may_choose(present):
            count, known = options.network.recovery.mirrors, self._known()
            hosts = choose_mirrors(
                options.name, count, directory.hosts, present, options.host, move, known=known, named=self._named
            )
            if self._chosen != (epoch, hosts):
                if self._chosen is None or self._chosen[1] != hosts:
                    log.info("copies of %s: %s", options.name, self._shown(hosts, known))
                self._chosen = epoch, hosts
                self._publish(epoch, hosts)
        if move == options.host:
            directory.move_done(options.name)
        elif move:
            self._hand_over(move, is_known=move in directory.hosts)

    def planned(self, plan: Plan | None) -> None:
        """The broker uses this plan from now on, or none."""
        self._plan = plan

    def _may_choose(self, present: Collection[str]) -> bool:
        """Whether all is known that a choice needs: nothing where every host gets a copy."""
        options, directory, count = self._options, self._directory, self._options.network.recovery.mirrors
        named = (*self._named, options.name) if self._named else ()
        candidates = eligible(options.name, directory.hosts, options.host, named)
        if len(candidates) <= count:
            return True
        at = {name: directory.endpoints.get(endpoint_name(name, name)) for name in candidates}
        is_measured = self._distances.want({name: address for name, address in at.items() if address is not None})
        return is_measured or len(candidates.keys() & present) >= count

    def _known(self) -> HostStatistics:
        plan, options = self._plan, self._options
        down = self._presence.down(self._now())
        planned = {} if plan is None else {frozenset(pair.brokers): pair.share for pair in plan.together}
        if plan is not None:
            down |= {name: one.failure for name, one in plan.brokers.items()}
        return HostStatistics(
            down,
            together_of(options.network.recovery.together, planned),
            self._distances.round_trip,
            load_of(options.name, self._directory.mirrors),
        )

    def _shown(self, hosts: tuple[str, ...], known: HostStatistics) -> str:
        return ", ".join(f"{host} ({_reasons(host, self._options.host, known)})" for host in hosts) or "no host"

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


def _reasons(host: str, serving: str, known: HostStatistics) -> str:
    words = [f"risk {copy_risk(host, (serving,), known):.3g}", f"{known.load.get(host, 0)} of other brokers"]
    if (round_trip := known.round_trip.get(host)) is not None:
        words.append("no answer" if round_trip >= NEVER else f"round trip {round_trip / MS:.3g} ms")
    return ", ".join(words)


def wanted_here(options: HostOptions, directory: HostDirectory, zookeeper: str) -> frozenset[Hosted]:
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
