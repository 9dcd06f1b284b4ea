"""Web clients for tests, of the standard library: requests, readers of events, and a subscriber of WebSub."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from brokers import Overlane, free_port

TIMEOUT_S = 60.0


class Response(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


class WebBroker(Overlane):
    """A broker with an HTTP listener. `web`: what the file says in [web]."""

    def __init__(self, directory: Path, tables: str = "", web: str = "") -> None:
        self.http = f"127.0.0.1:{free_port()}"
        web_table = f"[web]\n{web}\n" if web else ""
        super().__init__(directory, f"{tables}\n{web_table}[telemetry]\nenabled = false\n", f'http = "{self.http}"\n')

    def _answers(self) -> bool:
        host, port = self.http.split(":")
        with closing(socket.socket()) as probe:
            return super()._answers() and probe.connect_ex((host, int(port))) == 0


def ask(
    address: str,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
) -> Response:
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.putrequest(method, path)
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        for name, value in pairs:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return Response(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


class Event(NamedTuple):
    name: str
    data: Any
    id: str = ""


class EventReader:
    """Reads Server-Sent Events in a thread of its own."""

    def __init__(self, address: str, path: str, headers: Mapping[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        self._connection.request("GET", path, headers=dict(headers or {}))
        self._socket = self._connection.sock
        self.answer = self._connection.getresponse()
        self.events: list[Event] = []
        self.comments = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        if self.answer.status == 200:
            self._thread.start()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        try:
            for raw in self.answer:
                line = raw.decode().rstrip("\n")
                if line.startswith(":"):
                    self.comments += 1
                elif line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    data = json.loads(fields["data"])
                    self.events.append(Event(fields.get("event", "message"), data, fields.get("id", "")))
                    fields = {}
                else:
                    fields = {}
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            return

    @property
    def payloads(self) -> list[str]:
        return [one.data["payload"] for one in self.events if one.name == "message"]

    def close(self) -> None:
        """Also while the thread waits for the next line."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join()
        self.answer.close()
        self._connection.close()


@contextmanager
def reading(address: str, path: str, headers: Mapping[str, str] | None = None) -> Iterator[EventReader]:
    reader = EventReader(address, path, headers)
    try:
        yield reader
    finally:
        reader.close()


class Got(NamedTuple):
    body: bytes
    headers: dict[str, str]
    query: dict[str, str]


class Subscriber:
    """A callback of WebSub. It confirms what it is asked, and answers content with the status it is told to."""

    def __init__(self) -> None:
        self.confirms = True
        self.status = 204
        self.asked: list[dict[str, str]] = []
        self.got: list[Got] = []
        subscriber = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = dict(parse_qsl(urlsplit(self.path).query))
                subscriber.asked.append(query)
                self.send_response(200 if subscriber.confirms else 404)
                self.end_headers()
                if subscriber.confirms:
                    self.wfile.write(query.get("hub.challenge", "").encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                query = dict(parse_qsl(urlsplit(self.path).query))
                headers = {name.lower(): value for name, value in self.headers.items()}
                subscriber.got.append(Got(body, headers, query))
                self.send_response(subscriber.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/callback?mine=1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
