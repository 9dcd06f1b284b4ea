"""Mosquitto's files become a network file: same listeners, users and rights, and nobody gets more than before."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from overlane.cli.main import app
from overlane.migration import migrated
from overlane.migration.mosquitto_acl import read_acl
from overlane.network import read_network
from overlane.node.security.password_hashes import decoy, fault_of, is_password
from overlane.node.security.users import read_users
from overlane.pubsub.access import Access, Rule
from overlane.secret import Secret

ACL = """\
# general section: anonymous clients
topic read news

user alice
topic sensors/alice/#
topic deny sensors/alice/secret
topic read alarms/#

user bob smith
topic write orders

pattern readwrite clients/%c/#
"""


def init(*words: object) -> Result:
    return CliRunner().invoke(app, ["init", *map(str, words)])


def test_an_acl_file_gives_the_same_rights() -> None:
    found = read_acl(ACL)
    assert found.faults == found.notes == []
    access = Access(found.rules)
    assert access.may_receive(None, "c1", "news")
    assert not access.may_receive("alice", "c1", "news")
    assert access.may_publish("alice", "c1", "sensors/alice/1")
    assert not access.may_publish("alice", "c1", "sensors/alice/secret")
    assert not access.may_receive("alice", "c1", "sensors/alice/secret")
    assert access.may_receive("alice", "c1", "alarms/fire")
    assert not access.may_publish("alice", "c1", "alarms/fire")
    assert access.may_publish("bob smith", "c1", "orders")
    assert access.may_publish("bob smith", "c1", "clients/c1/state")
    assert access.may_publish(None, "c1", "clients/c1/state")
    assert not access.may_publish("bob smith", "c2", "clients/c1/state")


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        ("pattern read sensors/room-%u", False),
        ("pattern deny sensors/room-%u", True),
        ("topic read sensors/%u", False),
        ("topic deny sensors/%u", True),
        ("topic read a/#/b", False),
        ("topik read a", False),
    ],
)
def test_a_line_without_a_counterpart_is_told_and_one_that_denies_stops_the_move(line: str, is_fault: bool) -> None:
    found = read_acl(f"user alice\ntopic read b\n{line}\n")
    assert found.rules == [Rule(user="alice", subscribe=("b",))]
    told = found.faults if is_fault else found.notes
    assert len(told) == len(found.faults) + len(found.notes) == 1
    assert told[0].startswith(f"line 3: {line}: ")


def mosquitto_passwd(*words: object) -> None:
    program = shutil.which("mosquitto_passwd") or Path(sys.executable).with_name("mosquitto_passwd")
    subprocess.run([program, *map(str, words)], check=True)


@pytest.mark.parametrize("name", ["*", "anonymous"])
def test_a_user_whose_name_means_many_in_access_rules_stops_the_move(name: str) -> None:
    assert read_acl(f"user {name}\ntopic read secret\n").faults


def test_settings_behind_a_bridge_and_in_included_files_are_the_brokers() -> None:
    bridge = "connection far\naddress far\ntopic # both\nremote_username x\n"
    made = migrated([f"listener 1884\n{bridge}password_file p\n", "allow_anonymous true\n"], "plant", lambda _: "")
    assert (made.faults, made.network.security.users, made.network.security.anonymous) == ([], "p", True)


def test_paths_lead_to_the_same_files_from_another_directory(tmp_path: Path) -> None:
    conf = tmp_path / "etc" / "mosquitto.conf"
    conf.parent.mkdir()
    conf.write_text("listener 1884\npassword_file passwd\nacl_file acl\n")
    (conf.parent / "acl").write_text(ACL)
    for file in (tmp_path / "plant.toml", conf.parent / "plant.toml"):
        assert init(file, "--mosquitto", conf).exit_code == 0
        assert read_network(file).security.users == str(conf.parent / "passwd")


@pytest.mark.parametrize("scheme", ["sha512-pbkdf2", "sha512"])
def test_passwords_of_a_real_mosquitto_are_passwords_here(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "passwd"
    mosquitto_passwd("-H", scheme, "-c", "-b", path, "alice", "sesame")
    mosquitto_passwd("-H", scheme, "-b", path, "bob", "öffne dich")
    users = read_users(path)
    assert is_password(users.hashes["alice"], Secret(b"sesame"))
    assert is_password(users.hashes["bob"], Secret("öffne dich".encode()))
    assert not is_password(users.hashes["bob"], Secret(b"sesame"))
    target = tmp_path / "users.txt"
    passwd = ["passwd", str(target)]
    assert CliRunner().invoke(app, [*passwd, "bob", "--stdin"], input="new").exit_code == 0
    imported = CliRunner().invoke(app, [*passwd, "--import", str(path)])
    assert imported.output == "added 1 users; 1 were there and were not changed\n"
    assert is_password(read_users(target).hashes["alice"], Secret(b"sesame"))
    assert is_password(read_users(target).hashes["bob"], Secret(b"new"))


def test_an_unknown_user_costs_what_most_users_cost() -> None:
    slow = "$7$1000$AAAAAAAAAAAAAAAA$" + "A" * 86 + "=="
    quick = "$7$101$AAAAAAAAAAAAAAAA$" + "A" * 86 + "=="
    assert decoy([slow, slow, quick]).startswith("$7$1000$")
    assert decoy(["$6$AAAAAAAAAAAAAAAA$" + "A" * 86 + "=="]).startswith("$6$")
    assert not any(map(fault_of, map(decoy, ([slow], [quick], []))))
    assert decoy([]).startswith("$argon2id$")


@pytest.mark.parametrize(
    "hashed",
    [
        "$7$0$AAAA$" + "A" * 86 + "==",
        "$7$9999999$AAAA$" + "A" * 86 + "==",
        "$7$101$A=AA$" + "A" * 86 + "==",
        "$7$101$AAAA$AAAA",
        "$5$x$y",
    ],
)
def test_a_hash_that_cannot_be_checked_is_refused(hashed: str) -> None:
    assert fault_of(hashed)


CONF = """\
per_listener_settings false
persistence true
persistence_location /var/lib/mosquitto/
listener 1883 127.0.0.1
listener 8883
certfile /etc/mosquitto/server.crt
keyfile /etc/mosquitto/server.key
cafile /etc/mosquitto/ca.crt
require_certificate true
use_identity_as_username true
listener 9001
protocol websockets
allow_anonymous false
password_file /etc/mosquitto/passwd
acl_file acl
max_inflight_messages 50
max_connections -1
max_queued_messages 2000
sys_interval 10
include_dir conf.d
"""


def test_a_configuration_becomes_a_network_file(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text(CONF)
    (tmp_path / "acl").write_text(ACL)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "more.conf").write_text(
        "max_keepalive 120\nconnection far\naddress far:1883\ntopic # both\n"
    )
    made = init(tmp_path / "plant.toml", "--brokers", "plant", "--mosquitto", tmp_path / "mosquitto.conf")
    assert made.exit_code == 0, made.output
    assert "not converted: line 19: sys_interval 10: no counterpart" in made.output
    assert "bridge far" in made.output
    network = read_network(tmp_path / "plant.toml")
    assert {name: str(at) for name, at in network.brokers[0].listeners.items()} == {
        "mqtt": "127.0.0.1:1883",
        "mqtt_tls": "0.0.0.0:8883",
        "websocket": "0.0.0.0:9001",
    }
    security = network.security
    assert (security.anonymous, security.users) == (False, "/etc/mosquitto/passwd")
    assert (security.certificate, security.key) == ("/etc/mosquitto/server.crt", "/etc/mosquitto/server.key")
    assert (security.client_ca, security.client_certificate) == ("/etc/mosquitto/ca.crt", "required")
    limits = network.limits
    assert (limits.in_flight, limits.queue_messages, limits.keep_alive_s_max) == (50, 2_000, 120)
    assert limits.connections == 20_000
    assert network.access == tuple(read_acl(ACL).rules)
    assert "# Not converted: line 19: sys_interval" in (tmp_path / "plant.toml").read_text()


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ("plugin /usr/lib/auth.so", "line 1: plugin: has no counterpart"),
        ("per_listener_settings true", "line 1: per_listener_settings: has no counterpart"),
        ("connection far\naddress far\ntopic # both\nplugin /usr/lib/auth.so", "line 4: plugin: has no counterpart"),
        ("listener 1884", "nobody can connect"),
        ("port 1999", "nobody can connect"),
        ("listener 1884\nmount_point a/\nallow_anonymous true", "line 2: mount_point"),
        ("listener 8883\ncertfile a\nkeyfile b\nrequire_certificate true", "any client could connect"),
        (
            "password_file p\nlistener 8883\ncertfile a\nkeyfile b\ncafile c\nrequire_certificate true",
            "no password is asked for besides",
        ),
        ("acl_file empty", "empty: no rule in it can be taken over"),
        ("acl_file nowhere", "nowhere: found no way to read it"),
        (
            "listener 8883\ncertfile a\nkeyfile b\nlistener 8884\nprotocol websockets\ncertfile c\nkeyfile d",
            "other certificates",
        ),
    ],
)
def test_what_restricts_clients_and_has_no_counterpart_stops_the_move(tmp_path: Path, conf: str, told: str) -> None:
    (tmp_path / "mosquitto.conf").write_text(conf)
    (tmp_path / "empty").write_text("# nothing\n")
    made = init(tmp_path / "plant.toml", "--mosquitto", tmp_path / "mosquitto.conf")
    assert made.exit_code == 2
    assert told in made.output
    assert not (tmp_path / "plant.toml").exists()


@pytest.mark.parametrize(
    ("conf", "host", "anonymous"),
    [
        ("", "127.0.0.1:1883", True),
        ("port 1999\nallow_anonymous true", "0.0.0.0:1999", True),
        ("bind_address 127.0.0.1\npassword_file p", "127.0.0.1:1883", False),
        ("listener 1884\nallow_anonymous true", "0.0.0.0:1884", True),
        ("listener nonsense\nlistener 1884 ::1\nallow_anonymous true", "[::1]:1884", True),
        ("listener 1885\nprotocol http_api\nlistener 1884\nallow_anonymous true", "0.0.0.0:1884", True),
    ],
)
def test_anonymous_clients_and_addresses_are_those_of_mosquitto(conf: str, host: str, anonymous: bool) -> None:
    made = migrated([conf], "plant", lambda _: "")
    assert made.faults == []
    assert str(made.network.brokers[0].listeners["mqtt"]) == host
    assert made.network.security.anonymous is anonymous
