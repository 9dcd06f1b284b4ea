"""A service of the user's is asked by HTTP whether a client is who it says.

It gets a POST with a JSON object: user, password, client_id, address and listener. 204, or 200 with
`{"result": "allow"}`, accept the client. 200 with another result, 401, 403 and 404 refuse it. Everything else, and no
answer in time, is a fault of the service: the client is told to come again later.

Requests run in threads of their own, each with a connection that it keeps, so that a slow service delays no password
check. A client that was accepted is accepted again for a while without a request: after a network failure thousands
reconnect at once.
"""

import asyncio
import http.client
import json
import logging
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from urllib.parse import urlsplit

from overlane.core.units import SECOND
from overlane.errors import ConfigError, Fault
from overlane.network.schema.logins import LoginHook
from overlane.secret import Secret

THREADS = 8
WAITING_MAX = 256
REMEMBERED_MAX = 100_000
ANSWER_BYTES_MAX = 65_536
REPORT_EVERY_S = 60.0

log = logging.getLogger("overlane.security")


class HookAnswer(Enum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNAVAILABLE = "no answer, or none that can be understood"
    BUSY = "too many requests wait already"


class HookClient(threading.local):
    """The connection of one thread to the service."""

    connection: http.client.HTTPConnection | None = None


class HookCheck:
    """Belongs to one event loop."""

    def __init__(self, hook: LoginHook) -> None:
        """ConfigError if the authorities cannot be read."""
        self.hook = hook
        self._address = urlsplit(hook.url)
        self._tls = _tls(hook) if self._address.scheme == "https" else None
        self._client = HookClient()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="login-hook")
        self._waiting = 0
        self._remembered: dict[bytes, float] = {}
        self._reported_s = -REPORT_EVERY_S

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(
        self, user: str, password: Secret, digest: bytes, client_id: str, address: str, listener: str
    ) -> HookAnswer:
        """`digest`: of user and password, under a key that nobody else has."""
        if self._remembered.get(digest, 0.0) > time.monotonic():
            return HookAnswer.ACCEPTED
        if self._waiting >= WAITING_MAX:
            return HookAnswer.BUSY
        try:
            shown = password.reveal().decode()
            user.encode()
        except UnicodeError:
            return HookAnswer.REFUSED
        asked = {"user": user, "password": shown, "client_id": client_id, "address": address, "listener": listener}
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, self._post, json.dumps(asked).encode())
        finally:
            self._waiting -= 1
        if answer is HookAnswer.ACCEPTED and self.hook.remember_ns:
            self._remember(digest)
        return answer

    def _remember(self, digest: bytes) -> None:
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[digest] = time.monotonic() + self.hook.remember_ns / SECOND

    def _post(self, body: bytes) -> HookAnswer:
        """In a thread. A kept connection may have been closed by the service meanwhile: then once more on a new one."""
        is_new = self._client.connection is None
        try:
            return self._exchange(body)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            if not is_new and not isinstance(error, TimeoutError):
                try:
                    return self._exchange(body)
                except (OSError, http.client.HTTPException) as again:
                    self._drop()
                    error = again
            self._report(f"{type(error).__name__}: {error}")
            return HookAnswer.UNAVAILABLE

    def _exchange(self, body: bytes) -> HookAnswer:
        if self._client.connection is None:
            self._client.connection = self._open()
        connection = self._client.connection
        target = (self._address.path or "/") + (f"?{self._address.query}" if self._address.query else "")
        connection.request("POST", target, body, {"content-type": "application/json", "accept": "application/json"})
        response = connection.getresponse()
        content = response.read(ANSWER_BYTES_MAX + 1)
        if len(content) > ANSWER_BYTES_MAX or response.will_close:
            self._drop()
        return self._understand(response.status, content)

    def _open(self) -> http.client.HTTPConnection:
        host, port, timeout_s = self._address.hostname or "", self._address.port, self.hook.timeout_ns / SECOND
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)

    def _drop(self) -> None:
        if self._client.connection is not None:
            self._client.connection.close()
            self._client.connection = None

    def _understand(self, status: int, content: bytes) -> HookAnswer:
        if status in (401, 403, 404):
            return HookAnswer.REFUSED
        if status == 204:
            return HookAnswer.ACCEPTED
        try:
            found = json.loads(content) if status == 200 else None
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("result"), str):
            return HookAnswer.ACCEPTED if found["result"] == "allow" else HookAnswer.REFUSED
        told = "without a result" if status == 200 else "which is none that it may have"
        self._report(f"it answered with status {status}, {told}")
        return HookAnswer.UNAVAILABLE

    def _report(self, told: str) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = now_s
            log.error("clients cannot log in: the service %s fails: %s", self.hook.url, told)


def _tls(hook: LoginHook) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=hook.ca)
    except (OSError, ssl.SSLError) as error:
        told = f"no usable file: {getattr(error, 'strerror', None) or error}"
        raise ConfigError([Fault(hook.ca or "", 0, "", told, "authorities in PEM")]) from None
