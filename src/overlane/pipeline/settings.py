"""What a run of the pipeline is asked for: where telemetry is, and the few things that it cannot tell."""

from collections.abc import Callable
from dataclasses import dataclass

from overlane.errors import ConfigError, Fault

WHERE = "spark.overlane"


@dataclass(frozen=True, slots=True)
class Settings:
    lake: str
    domain: str = "default"
    item_levels: int = 1
    """Topics that share so many levels make an item."""
    capacity: float | None = None
    """Messages a second that a broker can carry."""
    channels: int = 8
    covariance_block: int = 4_096
    covariance_tasks: int = 4
    case_tasks: int = 64
    """Tasks that solve failure states; where there are more states, tasks take turns with them."""


def _number(kind: type[int] | type[float], at_least: int) -> Callable[[str], int | float]:
    def read(text: str) -> int | float:
        if not (number := kind(text)) >= at_least:
            raise ValueError(text)
        return number

    return read


_KINDS: dict[str, tuple[str, Callable[[str], str | int | float], str]] = {
    "lake": ("lake", str, "where brokers write telemetry, such as file:///srv/lake"),
    "domain": ("domain", str, "a name"),
    "itemLevels": ("item_levels", _number(int, 1), "a whole number from 1"),
    "capacity": ("capacity", _number(float, 0), "messages a second"),
    "channels": ("channels", _number(int, 0), "a whole number from 0"),
}


def read_settings(given: Callable[[str], str | None]) -> Settings:
    """Settings from configuration, by the names of `_KINDS`; ConfigError with everything that is wrong."""
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
    return Settings(**found)  # type: ignore[arg-type]  # each is of the kind that its field is
