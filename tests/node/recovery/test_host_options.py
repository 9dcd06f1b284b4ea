"""What the process of a mirror makes of what its host tells it."""

import sys
from pathlib import Path

import pytest

from overlane.errors import ConfigError
from overlane.network.reading import read_network
from overlane.node.options import Options
from overlane.node.recovery.host_options import HostOptions, host_options
from overlane.node.recovery.hosted import Hosted
from overlane.node.recovery.hosts.directory import HostDirectory
from overlane.node.recovery.hosts.placing import wanted_here
from overlane.recovery.hosts.host_records import MirrorsRecord

FILE = """
[coordination]
zookeeper = "embedded"
[recovery]
mirrors = 1
silence = "900ms"
[brokers.west-1]
role = "edge"
domain = "west"
mqtt = "127.0.0.1:1883"
[brokers.west-2]
role = "edge"
domain = "west"
mqtt = "127.0.0.2:1884"
overlay = "127.0.0.2:7002"
[brokers.spare]
role = "backup"
domain = "west"
"""


def options(folder: Path, host: str, hosted: str = "") -> HostOptions:
    file = folder / "net.toml"
    file.write_text(FILE)
    return host_options(Options(file, host, folder / host), read_network(file), hosted)


def test_a_hosted_broker_has_its_name_and_role_and_addresses_of_the_host(tmp_path: Path) -> None:
    told = '{"broker":"west-1","role":"edge","domain":"west","listeners":["mqtt"],"zookeeper":"127.0.0.1:2181"}'
    mirror = options(tmp_path, "west-2", told)
    broker, network = mirror.configuration()
    assert (mirror.host, mirror.name, mirror.is_home, mirror.has_broker) == ("west-2", "west-1", False, True)
    assert (broker.name, broker.data) == ("west-1", tmp_path / "west-2" / "mirrors" / "west-1")
    assert network.coordination is not None
    assert network.coordination.zookeeper == "127.0.0.1:2181"
    described = next(one for one in network.brokers if one.name == "west-1")
    assert (described.role, described.domain) == ("edge", "west")
    assert (described.listeners["mqtt"].host, described.overlay.host) == ("127.0.0.2",) * 2  # type: ignore[union-attr]
    assert described.listeners["mqtt"].port not in (1883, 1884)


def test_the_home_process_keeps_its_configuration_and_a_backup_has_no_broker(tmp_path: Path) -> None:
    home = options(tmp_path, "west-1")
    assert home.configuration() == (home.broker, home.network)
    assert home.role_and_listeners == ("edge", ("mqtt",))
    assert not options(tmp_path, "spare").has_broker
    assert home.settings.primary_lease < home.settings.mirror_lease == home.watch_settings.silence


def test_a_host_has_processes_for_copies_that_it_should_have_and_for_brokers_that_it_serves(tmp_path: Path) -> None:
    directory = HostDirectory("west")
    directory.mirrors = {
        "west-1": MirrorsRecord(2, "west-1", ("spare",), "edge", ("mqtt",)),
        "west-2": MirrorsRecord(3, "spare", (), "edge", ("mqtt", "ws")),
        "west-3": MirrorsRecord(2, "west-3", ("west-1",), "edge", ("mqtt",)),
        "spare": MirrorsRecord(2, "spare", ("spare",), "edge", ("mqtt",)),
    }
    assert wanted_here(options(tmp_path, "spare"), directory, "zk:1") == {
        Hosted("west-1", "edge", "west", ("mqtt",), "zk:1"),
        Hosted("west-2", "edge", "west", ("mqtt", "ws"), "zk:1"),
    }


def test_a_mirror_is_run_by_the_command_of_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["overlane", "broker", "net.toml", "--supervised"])
    words = options(tmp_path, "west-2").command_of_mirror(Hosted("west-1", "edge", "west", ("mqtt",), "zk:1"))
    assert words[:6] == [sys.executable, "-m", "overlane", "broker", "net.toml", "--supervised"]
    assert words[6] == "--hosted"
    assert options(tmp_path, "west-2", words[7]).hosted == Hosted("west-1", "edge", "west", ("mqtt",), "zk:1")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('[coordination]\nzookeeper = "embedded"\n', ""), "coordination: found nothing"),
        (("mirrors = 1", "mirrors = 9"), "recovery.mirrors: found 9"),
        (('"900ms"', '"1ms"'), 'recovery.silence: found "1ms"'),
        (("mirrors = 1", 'mirrors = 0\n[topics.a]\ndurability = "mirrored"'), "topics.a.durability"),
    ],
)
def test_a_file_that_asks_for_what_cannot_be_is_refused(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    file = tmp_path / "net.toml"
    text = FILE.replace(*change)
    assert text != FILE
    file.write_text(text.replace('silence = "900ms"\n', "") if "topics" in change[1] else text)
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        read_network(file)
