"""Requests of commands to the admin API: to one broker by its address, or to all brokers of a network file.

Brokers are called in parallel, each with a timeout. A broker that cannot be reached is part of the result, with the
reason.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from overlane.adminapi.client import NOT_A_BROKER, RequestFailed, request
from overlane.adminapi.views import View
from overlane.errors import ConfigError, Fault
from overlane.network.endpoints import ADMIN_PORT, HOST, endpoints
from overlane.network.reading import read_network
from overlane.network.schema import Endpoint, Network
from overlane.secret import Secret
from overlane.secret_file import read_token

PARALLEL_MAX = 32
PORT_MAX = 65_535
DEFAULT = f"{HOST}:{ADMIN_PORT}"
UNAUTHORIZED = 401

Body = TypeVar("Body", bound=View)


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """The admin API of one broker. The name is empty if only the address is known."""

    name: str
    endpoint: Endpoint

    def __str__(self) -> str:
        return self.name or str(self.endpoint)


@dataclass(frozen=True, slots=True)
class Targets:
    """The brokers that a command calls, and their admin token."""

    brokers: tuple[AdminAddress, ...]
    token: Secret | None


@dataclass(frozen=True, slots=True)
class Response(Generic[Body]):
    """What a broker answered; `body` is None and `error` the reason if the request failed."""

    broker: AdminAddress
    body: Body | None
    error: str = ""

    @property
    def name(self) -> str:
        return str(self.broker)


def targets_of(target: str, token_file: Path | None) -> Targets:
    """The brokers of a network file, or the one at an address; ConfigError if it is neither, or invalid."""
    if not target.endswith(".toml") and not Path(target).is_file():
        token = read_token(token_file) if token_file is not None else None
        return Targets((AdminAddress("", _endpoint(target)),), token)
    network = read_network(Path(target))
    brokers = [AdminAddress(one.name, endpoints(network, one.name, target).admin) for one in network.brokers]
    return Targets(tuple(brokers), admin_token(network, token_file))


def get_all(targets: Targets, path: str, parameters: dict[str, str | int], kind: type[Body]) -> list[Response[Body]]:
    """GET from all brokers, in their order."""
    wanted = _with_query(path, parameters)
    # Not in the threads: msgspec 0.22 crashes when two threads look at the fields of a dataclass for the first time.
    decoder = msgspec.json.Decoder(kind)

    def get(broker: AdminAddress) -> Response[Body]:
        try:
            body = _request(broker, "GET", wanted, targets.token)
            return Response(broker, decoder.decode(body))
        except RequestFailed as failed:
            return Response(broker, None, str(failed))
        except msgspec.MsgspecError:
            return Response(broker, None, NOT_A_BROKER)

    with ThreadPoolExecutor(min(PARALLEL_MAX, len(targets.brokers))) as threads:
        return list(threads.map(get, targets.brokers))


def get_bytes(targets: Targets, path: str) -> list[bytes | str]:
    """As `get_all`, of what is not JSON; a sentence for each broker that does not answer."""

    def get(broker: AdminAddress) -> bytes | str:
        try:
            return _request(broker, "GET", path, targets.token)
        except RequestFailed as failed:
            return f"{broker} does not answer: {failed}"

    with ThreadPoolExecutor(min(PARALLEL_MAX, len(targets.brokers))) as threads:
        return list(threads.map(get, targets.brokers))


def delete(
    broker: AdminAddress, path: str, parameters: dict[str, str | int], token: Secret | None, kind: type[Body]
) -> Body:
    """DELETE, with an answer; RequestFailed."""
    body = _request(broker, "DELETE", _with_query(path, parameters), token)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError:
        raise RequestFailed(NOT_A_BROKER) from None


def send(
    broker: AdminAddress,
    method: str,
    path: str,
    parameters: dict[str, str],
    token: Secret | None,
    body: bytes | None = None,
) -> str:
    """Send a command to a broker. Returns "" if it was carried out, otherwise the reason why not."""
    try:
        # Commands are answered with status 204; a response with a body is not a broker's.
        return NOT_A_BROKER if _request(broker, method, _with_query(path, parameters), token, body) else ""
    except RequestFailed as failed:
        return str(failed)


def send_all(
    targets: Targets, method: str, path: str, parameters: dict[str, str], body: bytes | None = None
) -> dict[str, str]:
    """Send a command to all brokers at once. By broker, "" or the reason why it was not carried out."""
    with ThreadPoolExecutor(min(PARALLEL_MAX, len(targets.brokers))) as threads:
        errors = threads.map(lambda one: send(one, method, path, parameters, targets.token, body), targets.brokers)
        return {str(broker): error for broker, error in zip(targets.brokers, errors, strict=True)}


def admin_token(network: Network, token_file: Path | None) -> Secret | None:
    """The token for the brokers of a network; ConfigError if it cannot be read."""
    path = token_file or network.security.admin_token
    return read_token(path) if path is not None else None


def error_lines(responses: Sequence[Response[Body]]) -> str:
    """A line for each broker that does not answer."""
    return "\n".join(f"{one.name} does not answer: {one.error}" for one in responses if one.body is None)


def _request(broker: AdminAddress, method: str, target: str, token: Secret | None, body: bytes | None = None) -> bytes:
    try:
        return request(broker.endpoint, method, target, token=token, body=body)
    except RequestFailed as failed:
        if failed.status == UNAUTHORIZED:
            raise RequestFailed(f"{failed}; see --token-file", failed.status) from None
        raise


def _with_query(path: str, parameters: dict[str, str] | dict[str, str | int]) -> str:
    query = urlencode({name: value for name, value in parameters.items() if value != ""})
    return f"{path}?{query}" if query else path


def _endpoint(text: str) -> Endpoint:
    host, colon, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        allowed = f'an address such as "{DEFAULT}", or a network file'
        raise ConfigError([Fault("ADDRESS", 0, "", f'"{text}"', allowed)])
    return Endpoint(host.strip("[]"), int(port))
