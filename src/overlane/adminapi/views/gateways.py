"""The state of a gateway, as it publishes it on `$overlane/gateways/NAME`, and as operators see it."""

from overlane.adminapi.views.view import View


class LaneView(View, frozen=True, kw_only=True):
    """One direction. All counts are since the gateway started."""

    passed: int = 0
    per_second: float = 0.0
    waiting: int = 0
    """Messages in the gateway that the other side has not accepted."""
    backlog: int | None = None
    """Messages that the sending broker still keeps for the gateway; None if that is unknown."""
    is_metered: bool = False
    """Whether a backlog is being forwarded at its limited rate."""
    looped: int = 0
    unnamed: int = 0
    refused: int = 0
    dropped: int = 0


class SideView(View, frozen=True, kw_only=True):
    is_connected: bool = False
    since: float = 0.0
    """When that began, in seconds since 1970."""
    last_error: str = ""


class GatewayView(View, frozen=True, kw_only=True):
    name: str
    broker: str
    to: str
    state: str = "down"
    """`up`: both sides are connected. `connecting`: one is not. `down`: the gateway does not run."""
    since: float = 0.0
    updated: float = 0.0
    overlay: SideView = SideView()
    foreign: SideView = SideView()
    inwards: LaneView = LaneView()
    outwards: LaneView = LaneView()
    last_error: str = ""


class GatewayList(View, frozen=True, kw_only=True):
    items: tuple[GatewayView, ...] = ()
