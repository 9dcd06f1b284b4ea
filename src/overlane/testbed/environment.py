"""The environment of a trial: how its brokers are started and reached, and how links are changed.

Implementations: loopback, and a wide area of network namespaces.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from overlane.adminapi.client import RequestFailed, request
from overlane.core.units import Nanos
from overlane.errors import Unavailable
from overlane.network import Network
from overlane.network.schema import Endpoint

ADMIN_TIMEOUT_S = 10.0


class Environment(Protocol):
    @property
    def network(self) -> Network:
        """The network file with the addresses that brokers have in this environment."""
        ...

    @property
    def broker_options(self) -> Sequence[str]: ...

    def open(self) -> None:
        """Unavailable if it cannot be created."""
        ...

    def close(self) -> None: ...

    def command(self, broker: str, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` at the site of a broker."""
        ...

    def admin_request(self, broker: str, method: str, path: str) -> bytes:
        """A request to the admin API of a broker; Unavailable if it fails."""
        ...

    def slow(self, one: str, other: str, latency_ns: Nanos) -> None: ...
    def lose(self, one: str, other: str, loss: float) -> None: ...
    def cut(self, one: str, other: str) -> None: ...
    def heal(self, one: str, other: str) -> None: ...
    def unplug(self, broker: str, uplink: str) -> None: ...
    def plug(self, broker: str, uplink: str) -> None: ...


def admin_request(
    broker: str,
    admin: Endpoint,
    method: str,
    target: str,
    connecting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> bytes:
    """A request to the admin API of a broker; Unavailable if it fails. `connecting`: see `adminapi.client.request`."""
    try:
        return request(admin, method, target, timeout_s=ADMIN_TIMEOUT_S, connecting=connecting)
    except RequestFailed as reason:
        raise Unavailable(f"broker {broker}", f"{method} {target} failed at its admin API: {reason}") from None
