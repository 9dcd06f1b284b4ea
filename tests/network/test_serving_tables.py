"""What the network file says to brokers that run: addresses, security, access rules and limits."""

from pathlib import Path

import msgspec
import pytest

from overlane.errors import ConfigError
from overlane.network import Endpoint, Security, format_network, parse_network, read_network
from overlane.network.sections.limits import ROWS
from overlane.pubsub.access import Rule
from overlane.pubsub.limits import EXPIRY_S_NEVER, NONE, Limits

DOCS = Path(__file__).parent.parent.parent / "docs"

EVERYTHING = """
[brokers.seattle]
mqtt = "0.0.0.0:1883"
mqtt_tls = "0.0.0.0:8883"
websocket = "127.0.0.1:8083"
websocket_tls = "[::]:8084"
overlay = "seattle.example.org:7001"
admin = "0.0.0.0:8001"

[security]
anonymous = false
users = "users.txt"
certificate = "tls/server.pem"
key = "/etc/keys/server.key"
client_ca = "../clients-ca.pem"
client_certificate = "optional"
admin_token = "admin.token"

[[access]]
user = "alice"
publish = ["sensors/%u/#", "$x/%c"]
subscribe = ["alarms/#"]

[[access]]
user = ""
subscribe = ["news"]

[[access]]
user = "*"
publish = []

[limits]
connections = 50
connections_per_second = 10
packet = "64KiB"
packet_before_connect = 2048
connect_within = "1.5s"
queue_messages = 100
queue = "1MiB"
in_flight = 20
user_properties = 0
messages_per_second = 1000
tries = 3
keep_alive_max = "5m"
session_expiry_max = "1d"
sessions = 77
topic_aliases = 0
subscriptions_per_client = 10
filters = 1000
filter_bytes = "2MiB"
retained_messages = 5
retained = 0
filter_levels = 8
topic_bytes = 500
streams = 3
stream_messages = 1000
stream = "2MiB"
stream_expiry = "1h"
brokers = 99
routes = 12
store = "1GiB"
"""

LIMITS = Limits(
    connections=50,
    connections_per_second=10,
    packet_bytes=65_536,
    packet_bytes_before_connect=2048,
    connect_within_ns=1_500_000_000,
    queue_messages=100,
    queue_bytes=2**20,
    in_flight=20,
    user_properties=0,
    messages_per_second=1000,
    tries=3,
    keep_alive_s_max=300,
    session_expiry_s_max=86_400,
    topic_aliases=0,
    subscriptions_per_client=10,
    filters=1_000,
    filter_bytes=2 * 2**20,
    retained_messages=5,
    sessions=77,
    retained_bytes=0,
    filter_levels=8,
    topic_bytes=500,
    streams=3,
    stream_messages=1_000,
    stream_bytes=2 * 2**20,
    stream_expiry_s=3_600,
    brokers=99,
    routes=12,
    store_bytes=2**30,
)


def test_every_field_means_what_the_reference_says() -> None:
    network = parse_network(EVERYTHING)
    (broker,) = network.brokers
    assert broker.listeners == {
        "mqtt": Endpoint("0.0.0.0", 1883),
        "mqtt_tls": Endpoint("0.0.0.0", 8883),
        "websocket": Endpoint("127.0.0.1", 8083),
        "websocket_tls": Endpoint("::", 8084),
    }
    assert (broker.overlay, broker.admin) == (Endpoint("seattle.example.org", 7001), Endpoint("0.0.0.0", 8001))
    assert network.security == Security(
        anonymous=False,
        users="users.txt",
        certificate="tls/server.pem",
        key="/etc/keys/server.key",
        client_ca="../clients-ca.pem",
        client_certificate="optional",
        admin_token="admin.token",
    )
    assert network.access == (
        Rule(user="alice", publish=("sensors/%u/#", "$x/%c"), subscribe=("alarms/#",)),
        Rule(user="anonymous", subscribe=("news",)),
        Rule(user="*"),
    )
    assert network.limits == LIMITS
    assert parse_network(format_network(network)) == network


def test_every_limit_can_be_given_in_the_file() -> None:
    fields = [field.name for field in msgspec.structs.fields(Limits)]
    assert [row.field for row in ROWS] == fields
    for field in fields:
        assert getattr(LIMITS, field) != getattr(Limits(), field)


def test_what_is_left_out_has_its_default() -> None:
    network = parse_network("[brokers.a]")
    assert network.security == Security(anonymous=None, client_certificate="required")
    assert network.access == ()
    assert network.limits == Limits(
        connections=20_000,
        connections_per_second=1_000,
        packet_bytes=1_048_576,
        packet_bytes_before_connect=4_096,
        connect_within_ns=10_000_000_000,
        queue_messages=10_000,
        queue_bytes=16_777_216,
        in_flight=100,
        user_properties=32,
        messages_per_second=NONE,
        tries=5,
        keep_alive_s_max=NONE,
        session_expiry_s_max=604_800,
        topic_aliases=64,
        subscriptions_per_client=1_000,
        filters=1_000_000,
        filter_bytes=67_108_864,
        retained_messages=100_000,
        retained_bytes=268_435_456,
        filter_levels=64,
        topic_bytes=4_096,
        store_bytes=NONE,
    )


def test_a_limit_can_be_lifted_where_that_is_safe() -> None:
    network = parse_network("""
        [brokers.a]
        [limits]
        messages_per_second = "none"
        keep_alive_max = "none"
        session_expiry_max = "none"
        store = "none"
    """)
    assert network.limits == Limits(session_expiry_s_max=EXPIRY_S_NEVER)
    assert parse_network(format_network(network)) == network


def test_paths_are_relative_to_the_file_wherever_the_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.toml").write_text(EVERYTHING)
    monkeypatch.chdir(tmp_path)
    network = read_network("nets/net.toml")
    assert network.security == Security(
        anonymous=False,
        users=f"{tmp_path}/nets/users.txt",
        certificate=f"{tmp_path}/nets/tls/server.pem",
        key="/etc/keys/server.key",
        client_ca=f"{tmp_path}/nets/../clients-ca.pem",
        client_certificate="optional",
        admin_token=f"{tmp_path}/nets/admin.token",
    )
    assert parse_network(format_network(network)) == network


def test_links_find_brokers_by_their_overlay_address_so_no_two_share_one() -> None:
    shared = '[brokers.a]\nmqtt = "{0}"\noverlay = "{1}"\n[brokers.b]\nmqtt = "{0}"\noverlay = "{1}"\n'
    # On two machines, two brokers may well have the same address for clients.
    parse_network(shared.format("127.0.0.1:1883", "0.0.0.0:7001"))
    with pytest.raises(ConfigError) as refused:
        parse_network(shared.format("127.0.0.1:1883", "10.0.0.1:7001"), "net.toml")
    assert str(refused.value) == (
        'net.toml:6: brokers.b.overlay: found "10.0.0.1:7001", allowed is an address of its own, and a has this one'
    )


SECURITY_FIELDS = (
    "admin_token, anonymous, certificate, client_ca, client_certificate, hook, jwt, key, overlay_open, overlay_secret,"
    " overlay_tls, users"
)
PATTERN = 'a topic filter such as "alarms/#" or "sensors/%u/+", with %u and %c as whole levels'
USER = 'the name of a user, "*" for all who have logged in, or "anonymous" for the rest'
PATH = "the path of a file, absolute or relative to this one"


@pytest.mark.parametrize(
    ("added", "message"),
    [
        (
            'mqtt = "127.0.0.1:8883"\nmqtt_tls = "0.0.0.0:8883"\n[security]\ncertificate = "c"\nkey = "k"',
            '3: brokers.a.mqtt_tls: found "0.0.0.0:8883", allowed is another address than mqtt\'s, which is'
            " 127.0.0.1:8883",
        ),
        (
            'mqt_tls = "0.0.0.0:8883"',
            "2: brokers.a.mqt_tls: found an unknown field, allowed is admin, amqp, amqp_tls, capacity, clock_drift_ppm,"
            " clock_offset, datagrams, domain, failure, http, http_tls, latitude, longitude, mqtt, mqtt_tls, nats,"
            " nats_tls, overlay, role, uplinks, websocket, websocket_tls; did you mean mqtt_tls?",
        ),
        (
            'websocket_tls = "0.0.0.0:8084"',
            "2: brokers.a.websocket_tls: found 0.0.0.0:8084 without a certificate, allowed is an address where"
            " [security] has certificate and key",
        ),
        (
            'admin = "10.0.0.1:8001"',
            "2: brokers.a.admin: found 10.0.0.1:8001 without a token, allowed is a loopback address such as"
            ' "127.0.0.1:8001", or any where [security] has admin_token',
        ),
        (
            "[security]\nanonymous = 1",
            "3: security.anonymous: found 1, allowed is true or false",
        ),
        (
            "[security]\nanonymous = false",
            "3: security.anonymous: found false, allowed is true, or false with users, client_ca, jwt or hook;"
            " otherwise no client could connect",
        ),
        (
            '[security]\npassword = "hunter2"',
            f"3: security.password: found an unknown field, allowed is {SECURITY_FIELDS}",
        ),
        (
            '[security]\nuser = "users.txt"',
            f"3: security.user: found an unknown field, allowed is {SECURITY_FIELDS}; did you mean users?",
        ),
        ('[security]\nusers = ""', f'3: security.users: found "", allowed is {PATH}'),
        ('[security]\nusers = "a\\u0000b"', f'3: security.users: found "a\\u0000b", allowed is {PATH}'),
        ("[security]\nusers = [1]", f"3: security.users: found [1], allowed is {PATH}"),
        (
            '[security]\ncertificate = "server.pem"',
            "2: security.key: found nothing, allowed is the path of a file, since there is certificate",
        ),
        (
            '[security]\nkey = "server.key"',
            "2: security.certificate: found nothing, allowed is the path of a file, since there is key",
        ),
        (
            '[security]\nclient_ca = "ca.pem"',
            "2: security.certificate: found nothing, allowed is the path of a file, since there is client_ca",
        ),
        (
            '[security]\nclient_certificate = "required"',
            "2: security.client_ca: found nothing, allowed is the path of a file, since there is client_certificate",
        ),
        (
            '[security]\ncertificate="c"\nkey="k"\nclient_ca="ca"\nclient_certificate = "require"',
            '6: security.client_certificate: found "require", allowed is "required" or "optional"; did you mean'
            ' "required"?',
        ),
        ("[access]", "2: access: found a table, allowed is an array of tables, [[access]]"),
        ('[[access]]\npublish = ["a"]', f"2: access[0].user: found nothing, allowed is {USER}"),
        ('[[access]]\nuser = "a\\n"\npublish = ["a"]', f'3: access[0].user: found "a\\n", allowed is {USER}'),
        (
            '[[access]]\nuser = "alice"',
            "2: access[0]: found nothing that it allows or denies, allowed is at least one of publish, subscribe,"
            " deny_publish, deny_subscribe",
        ),
        (
            '[[access]]\nuser = "alice"\npublsh = ["a"]\nsubscribe = []',
            "4: access[0].publsh: found an unknown field, allowed is deny_publish, deny_subscribe, publish, subscribe,"
            " user; did you mean publish?",
        ),
        (
            '[[access]]\nuser = "alice"\npublish = "a"',
            f'4: access[0].publish: found "a", allowed is a list, each {PATTERN}',
        ),
        (
            '[[access]]\nuser = "alice"\npublish = [\n  "a/#",\n  "a/#/b",\n]',
            f'6: access[0].publish[1]: found "a/#/b", allowed is {PATTERN}',
        ),
        (
            '[[access]]\nuser = "alice"\nsubscribe = ["sensors-%u/#"]',
            f'4: access[0].subscribe[0]: found "sensors-%u/#", allowed is {PATTERN}',
        ),
        (
            '[[access]]\nuser = "alice"\nsubscribe = [7]',
            f"4: access[0].subscribe[0]: found 7, allowed is {PATTERN}",
        ),
        (
            "[limits]\nconections = 5",
            "3: limits.conections: found an unknown field, allowed is brokers, connect_within, connections,"
            " connections_per_second, filter_bytes, filter_levels, filters, in_flight, keep_alive_max,"
            " messages_per_second, packet, packet_before_connect, queue, queue_messages, retained, retained_messages,"
            " routes, session_expiry_max, sessions, store, stream, stream_expiry, stream_messages, streams,"
            " subscriptions_per_client, topic_aliases, topic_bytes, tries, user_properties; did you mean connections?",
        ),
        (
            "[limits]\nconnections = 0",
            "3: limits.connections: found 0, allowed is a whole number from 1 to 10000000",
        ),
        ("[limits]\nin_flight = 65536", "3: limits.in_flight: found 65536, allowed is a whole number from 1 to 65535"),
        (
            '[limits]\npacket = "1GiB"',
            '3: limits.packet: found "1GiB", allowed is a size from 128B to 256MiB, in bytes or as in "64KiB"',
        ),
        ('[limits]\npacket = "32MiB"', '3: limits.packet: found "32MiB", allowed is at most as much as queue, 16MiB'),
        ('[limits]\nqueue = "64KiB"', '3: limits.queue: found "64KiB", allowed is at least as much as packet, 1MiB'),
        (
            '[limits]\nconnect_within = "0s"',
            '3: limits.connect_within: found "0s", allowed is a duration of at least 1ms such as "10s"',
        ),
        (
            '[limits]\nkeep_alive_max = "0s"',
            '3: limits.keep_alive_max: found "0s", allowed is whole seconds from 1s to 65535s, as in "90s" or "1h",'
            ' or "none"',
        ),
        (
            '[limits]\nsession_expiry_max = "1500ms"',
            '3: limits.session_expiry_max: found "1500ms", allowed is whole seconds from 0s to 315360000s, as in'
            ' "90s" or "1h", or "none"',
        ),
        (
            "[limits]\nmessages_per_second = 0",
            '3: limits.messages_per_second: found 0, allowed is a whole number from 1 to 1000000000, or "none"',
        ),
        (
            '[limits]\nqueue_messages = "none"',
            '3: limits.queue_messages: found "none", allowed is a whole number from 1 to 1000000000',
        ),
    ],
)
def test_a_bad_file_is_told_where_what_and_what_instead(added: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network("[brokers.a]\n" + added, "net.toml")
    assert str(refused.value) == f"net.toml:{message}"


@pytest.mark.parametrize(
    ("page", "heading", "name_column", "default_column"),
    [("network-file.md", "\n## [limits]", 1, 2), ("security.md", "\n## Limits", 2, 3)],
)
def test_the_documents_tell_every_limit_with_its_default(
    page: str, heading: str, name_column: int, default_column: int
) -> None:
    section = (DOCS / page).read_text().partition(heading)[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("|") and "`" in line]
    told = {row[name_column].strip(" `"): row[default_column].strip(' `"') for row in rows}
    assert sorted(told) == sorted(row.name for row in ROWS)
    fields = [f"{name} = {value}" if value.isdigit() else f'{name} = "{value}"' for name, value in told.items()]
    assert parse_network("\n".join(["[brokers.a]", "[limits]", *fields])).limits == Limits()
