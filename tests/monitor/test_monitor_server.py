"""The page's server: who is answered, what the browser is told, and that nothing is done without chaos."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from typer.testing import CliRunner

from brokers import free_port
from overlane.cli.main import app
from overlane.errors import ConfigError
from overlane.monitor.page_server import page_listener
from overlane.monitor.server import MonitorServer
from overlane.network.schema import Endpoint
from overlane.secret import Secret

TOKEN = "correct-horse-battery-staple"


async def three_lines() -> AsyncIterator[bytes]:
    for line in (b'{"head":1}\n', b'{"at_s":1}\n', b'{"at_s":2}\n'):
        yield line


@contextmanager
def running(token: str | None = None) -> Iterator[int]:
    port, started, ended = free_port(), Event(), Event()

    async def serve() -> None:
        server = MonitorServer(
            Endpoint("127.0.0.1", port), three_lines, None, Secret(token.encode()) if token else None
        )
        await server.start()
        started.set()
        while not ended.is_set():
            await asyncio.sleep(0.02)
        await server.stop()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(20)
        yield port
    finally:
        ended.set()
        thread.join(20)


@pytest.fixture(scope="module")
def open_port() -> Iterator[int]:
    with running() as port:
        yield port


@pytest.fixture(scope="module")
def guarded_port() -> Iterator[int]:
    with running(TOKEN) as port:
        yield port


def ask(
    port: int, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_the_page_and_its_parts_are_served_and_may_fetch_from_here_alone(open_port: int) -> None:
    for path in ("/", "/main.js", "/page.css", "/theme.css", "/icon.svg"):
        status, headers, body = ask(open_port, path)
        assert (status, bool(body)) == (200, True)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_no_part_of_the_page_names_another_host() -> None:
    page = Path(__file__).parents[2] / "src" / "overlane" / "monitor" / "page"
    for file in page.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "//cdn" not in text


def test_nothing_outside_the_page_is_served(open_port: int) -> None:
    for path in ("/nothing.js", "/../server.py", "/%2e%2e/server.py", "/__init__.py", "/page/main.js"):
        assert ask(open_port, path)[0] == 404


def test_the_stream_is_the_lines(open_port: int) -> None:
    status, headers, body = ask(open_port, "/api/stream")
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    assert [json.loads(line) for line in body.splitlines()] == [{"head": 1}, {"at_s": 1}, {"at_s": 2}]


def test_pages_of_other_places_get_nothing(open_port: int) -> None:
    assert ask(open_port, "/api/stream", Host="rebound.example.org")[0] == 421
    assert ask(open_port, "/api/stream", Origin="https://evil.example.org")[0] == 403
    assert ask(open_port, "/api/deeds/cut", "POST", b"{}", Origin="https://evil.example.org")[0] == 403
    assert ask(open_port, "/api/stream", Origin=f"http://127.0.0.1:{open_port}")[0] == 200


def test_nothing_is_done_without_chaos(open_port: int) -> None:
    status, _, body = ask(open_port, "/api/deeds/cut", "POST", b"{}", Content_Type="application/json")
    assert status == 403
    assert "--chaos" in json.loads(body)["error"]
    assert ask(open_port, "/api/deeds/cut")[0] == 405


def test_with_a_token_the_stream_needs_it_and_the_page_does_not(guarded_port: int) -> None:
    assert ask(guarded_port, "/")[0] == 200
    assert ask(guarded_port, "/api/stream")[0] == 401
    assert ask(guarded_port, "/api/stream", Authorization=f"Bearer {TOKEN}x")[0] == 401
    assert ask(guarded_port, "/api/deeds/cut", "POST", b"{}")[0] == 401
    assert ask(guarded_port, "/api/stream", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_elsewhere_than_on_loopback_a_token_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="token"):
        page_listener(None, "0.0.0.0:8080", None)
    with pytest.raises(ConfigError, match="an address such as"):
        page_listener(None, "nonsense", None)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    assert page_listener(None, "0.0.0.0:8080", file).token == Secret(TOKEN.encode())
    assert page_listener(None, "127.0.0.1:8080", None).token is None


def test_a_network_file_that_is_wrong_is_told_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("[brokers]\n")
    shown = CliRunner().invoke(app, ["monitor", str(file)])
    assert shown.exit_code == 2
    assert "wrong.toml" in shown.output
    assert CliRunner().invoke(app, ["monitor", str(tmp_path / "absent.toml")]).exit_code == 2
