"""Whether and where a broker records telemetry."""

import logging
from pathlib import Path
from typing import Protocol

from overlane.core.broker import OverlayBroker
from overlane.core.events import ReportedEffect
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.mqtt.arrival_counts import Tally
from overlane.mqtt.server import MqttServer
from overlane.network.schema import Network
from overlane.node.links.overlay import Overlay
from overlane.telemetry.recording import SPOOL, Recording

DIRECTORY = "telemetry"
"""In the data directory."""

NEEDS_EXTRA = missing_extra("pyarrow", "telemetry")

log = logging.getLogger("overlane.telemetry")


class TelemetryObserver(Protocol):
    """Who is shown what the driver does. It must take no time."""

    def delivered(self, tally: Tally) -> None: ...
    def happened(self, effect: ReportedEffect) -> None: ...


def recording_of(
    file: Path,
    data: Path | None,
    wanted: str | None,
    network: Network,
    server: MqttServer,
    core: OverlayBroker,
    overlay: Overlay,
) -> Recording | None:
    """The recording of a broker, not started; None if there is to be none. ConfigError or Unavailable.

    `wanted`: a directory or address from the command line, which goes before what the file says.
    """
    settings = network.telemetry
    where = wanted or (str(data / DIRECTORY) if data is not None and settings.enabled is not False else None)
    if where is None:
        if settings.enabled:
            found = "true for a broker that has no directory"
            raise ConfigError([Fault(str(file), 0, "telemetry.enabled", found, "true with --data or --telemetry")])
        return None
    if not is_installed("pyarrow"):
        if wanted or settings.enabled:
            raise Unavailable("telemetry", NEEDS_EXTRA)
        log.warning("no telemetry is recorded: %s", NEEDS_EXTRA)
        return None
    if "://" not in where:
        spool = Path(where) / SPOOL
    elif data is not None:
        spool = data / DIRECTORY / SPOOL
    else:
        raise ConfigError([Fault(str(file), 0, "", f"--telemetry {where} without --data", "a data directory with it")])
    return Recording(where, spool, settings, server, core, overlay)
