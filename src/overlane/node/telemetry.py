"""Whether and where a broker records what it does."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from overlane.core.broker import OverlayBroker
from overlane.core.events import ReportedEffect
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.mqtt.arrival_counts import Tally
from overlane.mqtt.server import Server
from overlane.network.schema import Network
from overlane.node.links.overlay import Overlay

if TYPE_CHECKING:
    from overlane.telemetry.recording import Recording

DIRECTORY = "telemetry"
"""In the data directory."""


class Observer(Protocol):
    """Who is shown what the driver does. It must take no time."""

    def delivered(self, tally: Tally) -> None: ...
    def happened(self, effect: ReportedEffect) -> None: ...


def recording_of(
    file: Path,
    data: Path | None,
    wanted: str | None,
    network: Network,
    server: Server,
    core: OverlayBroker,
    overlay: Overlay,
) -> "Recording | None":
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
    try:
        # Arrow takes a quarter of a second to load: commands that run no broker need not wait for it.
        from overlane.telemetry.arrow import stay_without_pandas
        from overlane.telemetry.recording import SPOOL, Recording
    except ImportError as missing:
        raise Unavailable("telemetry", f"{missing}; pip install pyarrow, or set telemetry.enabled = false") from None
    stay_without_pandas()
    if "://" not in where:
        spool = Path(where) / SPOOL
    elif data is not None:
        spool = data / DIRECTORY / SPOOL
    else:
        raise ConfigError([Fault(str(file), 0, "", f"--telemetry {where} without --data", "a data directory with it")])
    return Recording(where, spool, settings, server, core, overlay)
