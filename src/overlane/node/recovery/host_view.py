"""What people see of a process with one storage: why its broker waits, and the copies of one that serves."""

from collections.abc import Mapping

from overlane.adminapi.views import MirrorView, RecoveryView
from overlane.core.units import MS
from overlane.node.recovery.replication.replica_driver import ReplicaDriver
from overlane.node.recovery.replication.replication import Replication


def why_waiting(driver: ReplicaDriver | None) -> str:
    """Why the broker does not serve here; `driver`: None at a backup."""
    if driver is None:
        return "this is a backup: it has no broker of its own"
    value, own = driver.replica.replica_set, driver.storage.stored.storage
    if value is None:
        return "waiting for ZooKeeper: the host of this broker is not known yet"
    if value.primary == own:
        return "the broker starts"
    if value.is_forgotten:
        return "the broker was forgotten: delete its data directory and restart its host to start it empty"
    if value.primary_host == driver.host:
        return "the records of this broker were on a disk of this host that is gone, and no mirror has continued it"
    return f"{value.primary_host} serves this broker; this host has {'a' if value.has(own) else 'no complete'} copy"


def recovery_view(
    driver: ReplicaDriver, epoch: int, alarms: Mapping[str, int], replication: Replication
) -> RecoveryView:
    """While this host is the primary."""
    return RecoveryView(
        host=driver.host,
        epoch=epoch,
        mirrors=tuple(
            MirrorView(
                host=one.host,
                in_sync=one.is_in_sync,
                lag_batches=one.lag_batches,
                lag_bytes=one.lag_bytes,
                lag_ms=round(one.lag / MS, 1),
                heard_ms=None if one.heard_ago is None else round(one.heard_ago / MS, 1),
            )
            for one in driver.replica.mirror_states(driver.now())
        ),
        alarms=dict(alarms),
        bytes_in=replication.bytes_in,
        bytes_out=replication.bytes_out,
    )
