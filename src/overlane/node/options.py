"""How to run a broker: what the command line says, and what is different where its records are on several hosts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from overlane.adminapi.views import RecoveryView
from overlane.network.plan import Plan
from overlane.node.coordination.options import Own
from overlane.node.store.durable import RecordStore

if TYPE_CHECKING:  # a broker of a file alone does without
    from overlane.coordination.contract import Deliver, Service
    from overlane.coordination.records import ConfigRecord


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a broker. Without a data directory nothing survives its end."""

    file: Path
    name: str
    data: Path | None
    is_synced: bool = True
    is_emulated: bool = False
    """Whether links have the latencies of the file although the brokers may run on one machine."""
    is_chaotic: bool = False
    """Whether the admin API may make links fail."""
    telemetry: str | None = None
    """Where telemetry goes, if not into the data directory: a directory, or an address such as s3://bucket/lake."""
    own: Own | None = None
    """Of a broker without a file: its configuration is in ZooKeeper."""
    config: "ConfigRecord | None" = None
    """Of such a broker: the configuration in ZooKeeper that it starts with."""


@dataclass(frozen=True, slots=True)
class Replicated:
    """What is different for a broker whose records are on several hosts."""

    store: RecordStore
    """It has an incarnation already, which is durable."""
    epoch: int
    """Of the replica set."""
    host: str
    """On which the broker runs."""
    view: Callable[[], RecoveryView]
    planned: Callable[[Plan | None], None]
    """Called with every plan that is in use from now on; None: none is."""
    connect: "Callable[[Deliver], Service]"
    """A part of the session with ZooKeeper that its host has."""
