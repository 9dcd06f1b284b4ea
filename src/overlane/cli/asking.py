"""Asking brokers: one by its address, or all of a network file at once, through their admin API.

Each is asked in a thread of its own, with a limit to its patience; one that does not answer is an answer too, with the
reason. Standard library only: asking a broker should not need more than running one.
"""

import http.client
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from overlane.errors import ConfigError, Fault
from overlane.mqtt.secret import Secret
from overlane.network.endpoints import ADMIN_PORT, HOST, endpoints
from overlane.network.reading import read_network
from overlane.network.schema import Endpoint, Network
from overlane.node.secretfile import read_token
from overlane.node.views import ErrorView, View

PATIENCE_S = 3.0
ASKED_AT_ONCE = 32
ANSWER_BYTES_MAX = 64 * 2**20
PORT_MAX = 65_535
DEFAULT = f"{HOST}:{ADMIN_PORT}"

Given = TypeVar("Given", bound=View)


@dataclass(frozen=True, slots=True)
class Place:
    """Whom to ask. The name is empty where only an address is known."""

    name: str
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Audience:
    """Those who are asked, and the token for it."""

    places: tuple[Place, ...]
    token: Secret | None


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Given]):
    """What a broker answered; None with the reason if it did not."""

    place: Place
    answer: Given | None
    reason: str = ""

    @property
    def name(self) -> str:
        return self.place.name or str(self.place.endpoint)


def audience(target: str, token_file: Path | None) -> Audience:
    """Whom a network file or an address means; ConfigError when it is neither, or wrong."""
    if not target.endswith(".toml") and not Path(target).is_file():
        return Audience((Place("", _endpoint(target)),), read_token(token_file) if token_file is not None else None)
    network = read_network(Path(target))
    places = [Place(one.name, endpoints(network, one.name, target).admin) for one in network.brokers]
    return Audience(tuple(places), admin_token(network, token_file))


def ask(asked: Audience, path: str, parameters: dict[str, str | int], kind: type[Given]) -> list[Outcome[Given]]:
    """All of them, in their order."""
    query = urlencode({name: value for name, value in parameters.items() if value != ""})
    wanted = f"{path}?{query}" if query else path
    with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(asked.places))) as threads:
        return list(threads.map(lambda place: _ask(place, wanted, asked.token, kind), asked.places))


def tell(
    place: Place,
    method: str,
    path: str,
    parameters: dict[str, str],
    token: Secret | None,
    body: bytes | None = None,
) -> str:
    """Have a broker do something; "" if it has, else why not."""
    query = urlencode({name: value for name, value in parameters.items() if value != ""})
    outcome = _ask(place, f"{path}?{query}" if query else path, token, ErrorView, method, body)
    return outcome.reason


def tell_all(
    told: Audience, method: str, path: str, parameters: dict[str, str], body: bytes | None = None
) -> dict[str, str]:
    """Have all of them do something at once; by their names "" or why one has not."""
    with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(told.places))) as threads:
        whys = threads.map(lambda place: tell(place, method, path, parameters, told.token, body), told.places)
        return {place.name or str(place.endpoint): why for place, why in zip(told.places, whys, strict=True)}


def admin_token(network: Network, token_file: Path | None) -> Secret | None:
    """The token for the brokers of a network; ConfigError when it cannot be read."""
    path = token_file or network.security.admin_token
    return read_token(path) if path is not None else None


def reasons(outcomes: Sequence[Outcome[Given]]) -> str:
    """Why nobody answered, for people."""
    return "\n".join(f"{one.name} does not answer: {one.reason}" for one in outcomes)


def _ask(
    place: Place,
    wanted: str,
    token: Secret | None,
    kind: type[Given],
    method: str = "GET",
    body: bytes | None = None,
) -> Outcome[Given]:
    headers = {"Authorization": f"Bearer {token.reveal().decode()}"} if token is not None else {}
    at = place.endpoint.dialled()
    connection = http.client.HTTPConnection(at.host, at.port, timeout=PATIENCE_S)
    try:
        connection.request(method, wanted, body, headers)
        response = connection.getresponse()
        answer = response.read(ANSWER_BYTES_MAX)
        if response.status == 200:
            return Outcome(place, msgspec.json.decode(answer, type=kind))
        return Outcome(place, None, "" if response.status == 204 else _why(response.status, answer))
    except TimeoutError:
        return Outcome(place, None, f"nothing came within {PATIENCE_S:g} s")
    except OSError as error:
        return Outcome(place, None, (error.strerror or str(error)).lower())
    except (http.client.HTTPException, msgspec.MsgspecError):
        return Outcome(place, None, "what listens there is no broker of this version")
    finally:
        connection.close()


def _why(status: int, body: bytes) -> str:
    if status == 401:
        return "it asks for another token, give it with --token-file"
    try:
        return msgspec.json.decode(body, type=ErrorView).error
    except msgspec.MsgspecError:
        return f"HTTP status {status}"


def _endpoint(text: str) -> Endpoint:
    host, colon, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        allowed = f'an address such as "{DEFAULT}", or a network file'
        raise ConfigError([Fault("ADDRESS", 0, "", f'"{text}"', allowed)])
    return Endpoint(host.strip("[]"), int(port))
