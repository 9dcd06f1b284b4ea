"""The lines between this host and others, as far as recovery needs them: whether a broker is reached over one, and how
much of one copies may take.

Rates are those that the file gives to the links between the brokers that two hosts are configured for.
"""

from collections.abc import Callable

from overlane.core.units import SECOND
from overlane.node.links.overlay import Overlay
from overlane.node.links.pacing import Pace
from overlane.node.recovery.host_options import HostOptions
from overlane.node.recovery.hosts.directory import HostDirectory
from overlane.node.recovery.hosts.heard import HeardBrokers
from overlane.node.recovery.hosts.primary_watch import endpoint_of
from overlane.node.recovery.replication.replication import Replication
from overlane.node.recovery.replication.replication_pace import ReplicationPace
from overlane.recovery.hosts.host_records import endpoint_name
from overlane.recovery.hosts.questions import NOT_LINKED, NOT_REACHED


class Lines:
    def __init__(
        self,
        options: HostOptions,
        directory: HostDirectory,
        replication: Replication,
        overlay: Callable[[], Overlay | None],
    ) -> None:
        """`overlay`: of the broker that runs in this process, if it serves."""
        self._options = options
        self._directory = directory
        self._replication = replication
        self._overlay = overlay
        self._heard = HeardBrokers(overlay, self._probe)
        replication.heard_ago_ns = self._heard.ago_ns
        replication.pace_of = self._pace_of

    def end(self) -> None:
        self._heard.end()

    def rates_bps(self) -> list[int]:
        """Of overlay links whose rate the file gives."""
        overlay = self._overlay()
        if overlay is None:
            return []
        return [rate for peer in overlay.neighbours if (rate := overlay.rate_bps(peer)) is not None]

    async def _probe(self, broker: str) -> int:
        """For another host, which waits for a third of the silence."""
        record = self._directory.mirrors.get(broker)
        name = "" if record is None else endpoint_name(broker, record.primary)
        address = self._directory.endpoints.get(name)
        if address is None:
            return NOT_LINKED
        within_s = self._options.network.recovery.silence_ns / 4 / SECOND
        try:
            return await self._replication.ask(name, endpoint_of(address), broker, within_s)
        except (OSError, TimeoutError):
            return NOT_REACHED

    def _pace_of(self, host: str) -> ReplicationPace | None:
        own = self._options.host
        for link in self._options.network.links:
            if set(link.ends) == {own, host} and (rate_bps := link.from_end(own).rate_bps) is not None:
                return ReplicationPace(rate_bps, lambda: self._line(host))
        return None

    def _line(self, host: str) -> Pace | None:
        """Of the overlay link to that host, where it is driven here."""
        overlay = self._overlay() if self._options.is_home else None
        link = None if overlay is None else overlay.links.get(host)
        return None if link is None else link.pace
