"""Settings of a pipeline run: the location of the telemetry, and parameters that telemetry does not contain."""

from collections.abc import Callable
from dataclasses import dataclass

from overlane.errors import ConfigError, Fault

WHERE = "spark.overlane"
KEEP_RAW_MIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class DomainPlacement:
    """What the network file says about the items of a domain."""

    filters: tuple[tuple[str, str], ...] = ()
    """Topic filter and item, the most specific first. Other topics form items by levels, which are not placed."""
    critical: tuple[str, ...] = ()
    capacities: tuple[tuple[str, float], ...] = ()
    """The brokers of the domain, in messages per second. Empty: all brokers of the lake."""
    unstated: tuple[str, ...] = ()
    """Those of them whose capacity the file does not state."""
    risk_max: float = 0.02


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    lake: str
    domain: str = "default"
    item_levels: int = 1
    """Number of leading topic levels that form an item."""
    capacity: float | None = None
    """Capacity of a broker in messages per second."""
    residence_ms: float = 10.0
    """Time that 99 % of the messages may stay in a broker: its measured capacity is the highest rate that keeps it."""
    channels: int = 8
    placement: DomainPlacement = DomainPlacement()
    keep_raw_s: float | None = None
    """How long ingested rows are kept; None: for ever."""
    covariance_block: int = 4_096
    covariance_tasks: int = 4
    case_tasks: int = 64
    """Number of tasks that solve failure states."""


def _number(kind: type[int] | type[float], at_least: int) -> Callable[[str], int | float]:
    def read(text: str) -> int | float:
        if not (number := kind(text)) >= at_least:
            raise ValueError(text)
        return number

    return read


_KINDS: dict[str, tuple[str, Callable[[str], str | int | float], str]] = {
    "lake": ("lake", str, "the location of the telemetry, such as file:///srv/lake"),
    "domain": ("domain", str, "a name"),
    "itemLevels": ("item_levels", _number(int, 1), "a whole number from 1"),
    "capacity": ("capacity", _number(float, 0), "messages per second"),
    "channels": ("channels", _number(int, 0), "a whole number from 0"),
}


def read_settings(given: Callable[[str], str | None]) -> PipelineSettings:
    """Settings from the configuration, by the names in `_KINDS`; ConfigError with all invalid ones."""
    faults: list[Fault] = []
    found: dict[str, str | int | float] = {}
    for name, (field, kind, allowed) in _KINDS.items():
        text = given(name)
        if text is None or text == "":
            continue
        try:
            found[field] = kind(text)
        except ValueError:
            faults.append(Fault(WHERE, 0, name, repr(text), allowed))
    if "lake" not in found:
        faults.append(Fault(WHERE, 0, "lake", "nothing", _KINDS["lake"][2]))
    if faults:
        raise ConfigError(faults)
    return PipelineSettings(**found)  # type: ignore[arg-type]  # each is of the kind that its field is
