"""A broker as streams are read from and written to: requests to its admin API, repeated while it does not answer.

Every request may be repeated without harm: ranges are read again alike, commits go to an offset, and parts of a batch
are published once. So a broker that restarts, or a connection that breaks, costs a pause and nothing else. A broker
that stays away is `Unavailable`; what it refuses is `Refused`, and no repetition would help.
"""

import base64
import http.client
import ssl
import time
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from overlane.errors import Unavailable
from overlane.node.views import LoggedPage, NoteView, PartView, PlaceView, StreamView

PATIENCE_S = 60.0
TIMEOUT_S = 60.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 2.0
TRY_AGAIN = frozenset({429, 500, 502, 503, 504})
GONE = 410

Answered = TypeVar("Answered", bound=msgspec.Struct)


class Refused(Exception):
    """What a broker does not do, and why."""

    def __init__(self, address: str, status: int, told: str) -> None:
        super().__init__(f"{address}: {told}")
        self.status = status


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker is reached, beside its address. With `ca` a server is believed whom this file speaks for."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    ca: str | None = None
    patience_s: float = PATIENCE_S

    def __repr__(self) -> str:
        return f"Access(user={self.user!r})"

    def headers(self) -> dict[str, str]:
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            pair = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


class StreamBroker:
    def __init__(self, address: str, access: Access) -> None:
        self.address = address
        self._access = access
        self._connection: http.client.HTTPConnection | None = None

    def make(self, stream: str, topic_filter: str, scope: str, with_retained: bool) -> StreamView:
        """The stream, which is there from now on."""
        query = {"filter": topic_filter, "scope": scope, "retained": "true" if with_retained else "false"}
        return self._ask("PUT", f"/streams/{quote(stream)}", query, StreamView)

    def look(self, stream: str) -> StreamView:
        return self._ask("GET", f"/streams/{quote(stream)}", {}, StreamView)

    def read(self, stream: str, since_ns: int, start: int, end: int, messages_max: int) -> LoggedPage:
        query = {"from": start, "until": end, "limit": messages_max, "since": since_ns, "format": "msgpack"}
        return self._ask("GET", f"/streams/{quote(stream)}/messages", query, LoggedPage)

    def commit(self, stream: str, since_ns: int, to: int) -> None:
        self._send("POST", f"/streams/{quote(stream)}/commit", {"to": to, "since": since_ns})

    def write(self, writer: str, batch: int, start: int, notes: tuple[NoteView, ...]) -> None:
        """Publish them all. Unavailable if the broker has no room for them for too long."""
        pause_s, until = PAUSE_MIN_S, time.monotonic() + self._access.patience_s
        body = msgspec.json.encode(PartView(batch=batch, start=start, messages=notes))
        while True:
            place = self._ask("POST", f"/writers/{quote(writer)}", {}, PlaceView, body)
            if not place.refused:
                return
            if time.monotonic() > until:
                raise Unavailable(self.address, place.refused)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Requests

    def _ask(
        self, method: str, path: str, query: Mapping[str, Any], answer: type[Answered], body: bytes | None = None
    ) -> Answered:
        content_type, content = self._send(method, path, query, body)
        if content_type.startswith("application/msgpack"):
            return msgspec.msgpack.decode(content, type=answer)
        return msgspec.json.decode(content, type=answer)

    def _send(self, method: str, path: str, query: Mapping[str, Any], body: bytes | None = None) -> tuple[str, bytes]:
        """What kind of answer it is, and the answer."""
        pause_s, until = PAUSE_MIN_S, time.monotonic() + self._access.patience_s
        target = f"{path}?{urlencode(query)}" if query else path
        while True:
            try:
                status, content_type, content = self._once(method, target, body)
            except ssl.SSLCertVerificationError as unknown:
                raise Unavailable(self.address, unknown.verify_message) from None
            except (OSError, http.client.HTTPException) as broken:
                self.close()
                reason = str(broken) or type(broken).__name__
            else:
                if status < 300:
                    return content_type, content
                reason = _told(content) or f"status {status}"
                if status not in TRY_AGAIN:
                    raise Refused(self.address, status, reason)
            if time.monotonic() > until:
                raise Unavailable(self.address, reason)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _once(self, method: str, target: str, body: bytes | None) -> tuple[int, str, bytes]:
        if self._connection is None:
            self._connection = self._connected()
        self._connection.request(method, target, body, self._access.headers())
        answer = self._connection.getresponse()
        return answer.status, answer.getheader("content-type", ""), answer.read()

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.address if "://" in self.address else f"http://{self.address}")
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._access.ca)
            return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)


def _told(content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
