"""`overlane check` finds what would keep a broker from starting; `overlane init` writes a file that passes it."""

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from overlane.cli.main import app
from overlane.local_ports import free_ports
from overlane.network import parse_network
from overlane.node.store.data_directory import DataDirectory
from overlane.testbed.certificates import Authority

TLS = '[security]\ncertificate = "{name}.pem"\nkey = "{name}.key"\nclient_ca = "ours.pem"\noverlay_tls = true\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, [*words])


def write(here: Path, *names: str, more: str = "") -> dict[str, int]:
    """A network file; the ports of the first broker."""
    ports: dict[str, int] = {}
    text = ""
    for name in names or ("north",):
        found = dict(zip(("mqtt", "overlay", "admin"), free_ports(3), strict=True))
        ports = ports or found
        text += f"[brokers.{name}]\n" + "".join(f'{field} = "127.0.0.1:{port}"\n' for field, port in found.items())
    (here / "net.toml").write_text(text + more)
    return ports


def test_a_broker_that_would_start_is_ok(here: Path) -> None:
    write(here, "north", "south")
    checked = run("check", "net.toml")
    assert (checked.exit_code, checked.output) == (0, "north: ok\nsouth: ok\n")
    assert not (here / "overlane-data").exists()


def test_an_address_in_use_is_found_unless_the_brokers_run(here: Path) -> None:
    ports = write(here)
    with socket.create_server(("127.0.0.1", ports["admin"])):
        checked = run("check", "net.toml")
        assert checked.exit_code == 1
        told = f"admin address 127.0.0.1:{ports['admin']}: Address already in use"
        assert checked.output == f"north: unavailable: {told}\n"
        assert run("check", "net.toml", "--running").exit_code == 0


def test_a_data_directory_in_use_is_found(here: Path) -> None:
    write(here)
    taken = DataDirectory.take(here / "overlane-data" / "north")
    checked = run("check", "net.toml")
    assert checked.exit_code == 1
    assert (
        "north: unavailable: data directory overlane-data/north: in use by another broker, process " in checked.output
    )
    taken.release()
    assert run("check", "net.toml").exit_code == 0


def test_a_data_directory_that_cannot_be_made_is_found(here: Path) -> None:
    write(here)
    (here / "file").write_text("")
    checked = run("check", "net.toml", "--name", "north", "--data", "file/data")
    assert checked.exit_code == 1
    assert "data directory file/data: file is not a directory" in checked.output


def test_everything_wrong_with_the_files_is_found_at_once_and_said_once(here: Path) -> None:
    more = '[security]\nusers = "users.txt"\nadmin_token = "token"\noverlay_secret = "secret"\n'
    write(here, "north", "south", more=more)
    for name, content in {"users.txt": "alice:sesame\n", "token": "short", "secret": "0123456789abcdef"}.items():
        (here / name).write_text(content)
        (here / name).chmod(0o644 if name == "secret" else 0o600)
    checked = run("check", "net.toml")
    assert checked.exit_code == 2
    said = [line.split(": ")[:2] for line in checked.output.splitlines()]
    assert sorted(said) == [
        *(["net.toml", level] for level in ("invalid", "invalid", "warning")),
        *([name, "ok"] for name in ("north", "south")),
    ]
    assert "users.txt:1" in checked.output
    assert "a token of 5 bytes" in checked.output
    assert "the overlay secret" in checked.output
    assert "sesame" not in checked.output


def test_certificates_are_those_of_each_broker(here: Path) -> None:
    authority = Authority(here, "ours")
    authority.broker("north")
    authority.client("south", dns=["another"])
    write(here, "north", "south", more=TLS)
    checked = run("check", "net.toml")
    assert checked.exit_code == 2
    assert "north.pem: the certificate expires in 29 days" in checked.output
    assert "the certificate must have the DNS name south; it has another" in checked.output


def test_expired_and_missing_certificates_are_found(here: Path) -> None:
    authority = Authority(here, "ours")
    authority.client("north", dns=["north"], days=-1)
    write(here, "north", "south", more=TLS)
    checked = run("check", "net.toml")
    assert checked.exit_code == 2
    assert "the certificate expired on" in checked.output
    assert "south.pem: found no way to read it" in checked.output


@pytest.mark.parametrize(
    ("more", "files", "told"),
    [
        ("[limits]\nconnections = 8000\n", 8_000, "at most 7744 connections instead of 8000"),
        ("", 8_000, ""),
        ("", 1_024, "at most 768 connections instead of 20000"),
    ],
)
def test_more_connections_than_open_files_are_a_warning_where_the_file_asks_for_them_or_few_are_left(
    here: Path, monkeypatch: pytest.MonkeyPatch, more: str, files: int, told: str
) -> None:
    monkeypatch.setattr("overlane.node.checking.files_allowed", lambda: files)
    write(here, more=more)
    checked = run("check", "net.toml")
    assert checked.exit_code == 0
    line = f"warning: the system allows {files} open files: {told} (ulimit -n, or LimitNOFILE of systemd)"
    assert checked.output == f"north: {line if told else 'ok'}\n"


def test_neighbours_that_do_not_answer_are_a_warning_where_asked_for(here: Path) -> None:
    write(here, "north", "south", more='[[links]]\nends = ["north", "south"]\nlatency = "1ms"\n')
    assert "nothing answers" not in run("check", "net.toml").output
    checked = run("check", "net.toml", "--reach", "--json")
    assert checked.exit_code == 0
    brokers = json.loads(checked.output)["brokers"]
    assert [finding["level"] for finding in brokers["north"]] == ["warning"]
    assert "neighbour south: nothing answers at" in brokers["north"][0]["told"]


def test_a_wrong_file_or_name_is_refused(here: Path) -> None:
    write(here)
    assert run("check", "nothing.toml").exit_code == 2
    checked = run("check", "net.toml", "--name", "nort")
    assert checked.exit_code == 2
    assert "did you mean north?" in checked.output


def test_brokers_with_the_same_addresses_are_for_several_machines(here: Path) -> None:
    port = free_ports(1)[0]
    text = "".join(f'[brokers.{name}]\nmqtt = "127.0.0.1:{port}"\n' for name in ("north", "south"))
    (here / "net.toml").write_text(text)
    checked = run("check", "net.toml", "--running")
    assert checked.exit_code == 0
    assert "net.toml: warning: not all of them can run on one machine (overlane up): " in checked.output


@pytest.mark.parametrize("names", ["broker-1", "north, south,east.1"])
def test_a_first_file_is_valid_with_and_without_its_comments_and_never_replaced(here: Path, names: str) -> None:
    made = run("init", "--brokers", names)
    assert made.exit_code == 0
    assert made.output == "wrote overlane.toml\nnext: overlane check overlane.toml && overlane up overlane.toml\n"
    text = (here / "overlane.toml").read_text()
    assert [one.name for one in parse_network(text).brokers] == [name.strip() for name in names.split(",")]
    again = run("init")
    assert (again.exit_code, "exists" in again.output) == (2, True)
    assert (here / "overlane.toml").read_text() == text


def test_what_the_comments_of_a_first_file_suggest_is_valid(here: Path) -> None:
    run("init", "--brokers", "north,south")
    lines = (here / "overlane.toml").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("[brokers"))
    used = [line.removeprefix("# ") if " = " in line or line.startswith("# [") else line for line in lines[start:]]
    (here / "all.toml").write_text("\n".join(used))
    checked = run("check", "all.toml", "--running")
    assert "found an unknown field" not in checked.output
    assert "users.txt" in checked.output


def test_a_bad_name_is_refused_and_nothing_is_written(here: Path) -> None:
    made = run("init", "--brokers", "a b")
    assert made.exit_code == 2
    assert list(here.iterdir()) == []


def test_what_rules_of_federation_close_is_noted_for_each_broker(here: Path) -> None:
    rules = """
[[federation]]
broker = "a"
with = "b"
leave = ["alarms/#", "news"]
[[federation]]
broker = "c"
enter = ["news"]
[[federation]]
broker = "b"
leave = ["#"]
"""
    write(here, "a", "b", "c", more=rules)
    result = run("check", "net.toml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "a: note: [[federation]]: may leave: nothing for c; alarms/#, news for b",
        "a: ok",
        "b: ok",
        "c: note: [[federation]]: may enter: news from a, b",
        "c: ok",
    ]
