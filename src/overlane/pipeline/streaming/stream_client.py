"""Client for streams and writers of a broker: requests to its admin API, retried while it does not answer.

Every request is idempotent: ranges can be read again, commits name an offset, and parts of a batch are published once.
So the restart of a broker or a broken connection only causes a delay. A broker that stays unreachable is `Unavailable`;
a request that it rejects is `RequestRejected` and is not retried.
"""

import base64
import http.client
import ssl
import time
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from overlane.adminapi.views import (
    StreamMessagePage,
    StreamView,
    WriterBatchView,
    WriterMessageView,
    WriterProgressView,
)
from overlane.errors import OverlaneError, Unavailable

RETRY_S = 60.0
TIMEOUT_S = 60.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 2.0
RETRIED = frozenset({429, 500, 502, 503, 504})
GONE = 410

Body = TypeVar("Body", bound=msgspec.Struct)


class RequestRejected(OverlaneError):
    """The broker rejected a request; a retry would not help."""

    error_code = "OVL-214"

    def __init__(self, address: str, status: int, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.status = status


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to authenticate to a broker, and how long to retry. `ca`: file with trusted certificate authorities."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    ca: str | None = None
    retry_s: float = RETRY_S

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"

    def headers(self) -> dict[str, str]:
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            pair = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


class StreamClient:
    def __init__(self, address: str, credentials: Credentials) -> None:
        self.address = address
        self._credentials = credentials
        self._connection: http.client.HTTPConnection | None = None

    def create(self, stream: str, topic_filter: str, scope: str, with_retained: bool) -> StreamView:
        """The stream, created if it did not exist."""
        query = {"filter": topic_filter, "scope": scope, "retained": "true" if with_retained else "false"}
        return self._request("PUT", f"/streams/{quote(stream)}", query, StreamView)

    def get(self, stream: str) -> StreamView:
        return self._request("GET", f"/streams/{quote(stream)}", {}, StreamView)

    def read(self, stream: str, since_ns: int, start: int, end: int, messages_max: int) -> StreamMessagePage:
        query = {"from": start, "until": end, "limit": messages_max, "since": since_ns, "format": "msgpack"}
        return self._request("GET", f"/streams/{quote(stream)}/messages", query, StreamMessagePage)

    def commit(self, stream: str, since_ns: int, to: int) -> None:
        self._send("POST", f"/streams/{quote(stream)}/commit", {"to": to, "since": since_ns})

    def write(self, writer: str, batch: int, start: int, messages: tuple[WriterMessageView, ...]) -> None:
        """Publish all messages; Unavailable if the broker has no room for them for too long."""
        pause_s, until = PAUSE_MIN_S, time.monotonic() + self._credentials.retry_s
        body = msgspec.json.encode(WriterBatchView(batch=batch, start=start, messages=messages))
        while True:
            progress = self._request("POST", f"/writers/{quote(writer)}", {}, WriterProgressView, body)
            if not progress.refused:
                return
            if time.monotonic() > until:
                raise Unavailable(self.address, progress.refused)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Requests

    def _request(
        self, method: str, path: str, query: Mapping[str, Any], kind: type[Body], body: bytes | None = None
    ) -> Body:
        content_type, content = self._send(method, path, query, body)
        if content_type.startswith("application/msgpack"):
            return msgspec.msgpack.decode(content, type=kind)
        return msgspec.json.decode(content, type=kind)

    def _send(self, method: str, path: str, query: Mapping[str, Any], body: bytes | None = None) -> tuple[str, bytes]:
        """Content type and body of the response."""
        pause_s, until = PAUSE_MIN_S, time.monotonic() + self._credentials.retry_s
        target = f"{path}?{urlencode(query)}" if query else path
        while True:
            try:
                status, content_type, content = self._attempt(method, target, body)
            except ssl.SSLCertVerificationError as error:
                raise Unavailable(self.address, error.verify_message) from None
            except (OSError, http.client.HTTPException) as broken:
                self.close()
                reason = str(broken) or type(broken).__name__
            else:
                if status < 300:
                    return content_type, content
                reason = _error_of(content) or f"status {status}"
                if status not in RETRIED:
                    raise RequestRejected(self.address, status, reason)
            if time.monotonic() > until:
                raise Unavailable(self.address, reason)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _attempt(self, method: str, target: str, body: bytes | None) -> tuple[int, str, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, target, body, self._credentials.headers())
        answer = self._connection.getresponse()
        return answer.status, answer.getheader("content-type", ""), answer.read()

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.address if "://" in self.address else f"http://{self.address}")
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._credentials.ca)
            return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)


def _error_of(content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
