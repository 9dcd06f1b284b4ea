"""What a run of the pipeline is asked for: where telemetry is, and the few things that it cannot tell."""

from dataclasses import dataclass


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
