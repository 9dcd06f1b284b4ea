"""Where brokers listen: the file's addresses, defaults by position, and no two on the same one."""

import pytest

from overlane.errors import ConfigError
from overlane.network import (
    Broker,
    Endpoint,
    Endpoints,
    Network,
    endpoints,
    endpoints_on_one_machine,
    format_network,
    parse_network,
)
from overlane.network.listeners import LISTENER_KINDS, ListenerKind
from overlane.turn.protocols import MQTT, PROTOCOLS


def local(port: int) -> Endpoint:
    return Endpoint("127.0.0.1", port)


def test_brokers_that_say_nothing_listen_on_ports_by_their_position() -> None:
    network = parse_network("[brokers.a]\n[brokers.b]\n[brokers.c]\n")
    assert endpoints_on_one_machine(network) == {
        name: Endpoints(
            listeners={"mqtt": local(1883 + position)},
            overlay=local(7001 + position),
            admin=local(8001 + position),
        )
        for position, name in enumerate("abc")
    }
    assert endpoints(network, "b") == endpoints_on_one_machine(network)["b"]


def test_what_the_file_says_goes_before_the_default() -> None:
    network = parse_network("""
        [brokers.a]
        [brokers.b]
        mqtt = "0.0.0.0:9000"
        mqtt_tls = "0.0.0.0:9001"
        websocket = "[::1]:9002"
        [security]
        certificate = "server.pem"
        key = "server.key"
    """)
    assert endpoints(network, "b") == Endpoints(
        listeners={
            "mqtt": Endpoint("0.0.0.0", 9000),
            "mqtt_tls": Endpoint("0.0.0.0", 9001),
            "websocket": Endpoint("::1", 9002),
        },
        overlay=local(7002),
        admin=local(8002),
    )


def test_a_default_that_another_broker_has_taken_is_told_when_both_run_on_one_machine() -> None:
    network = parse_network("""
        [brokers.a]
        mqtt = "127.0.0.1:1884"
        [brokers.b]
        [brokers.c]
        admin = "[::]:7001"
        [security]
        admin_token = "admin.token"
    """)
    with pytest.raises(ConfigError) as refused:
        endpoints_on_one_machine(network, "net.toml")
    other = "'s; the file can give either of them one"
    assert str(refused.value).splitlines() == [
        f"net.toml: brokers.b.mqtt: found 127.0.0.1:1884, allowed is another address than brokers.a.mqtt{other}",
        f"net.toml: brokers.c.admin: found [::]:7001, allowed is another address than brokers.a.overlay{other}",
    ]
    # Each alone runs: they may be on different machines.
    for name in "abc":
        endpoints(network, name)


def test_a_default_that_the_broker_itself_has_taken_is_told() -> None:
    network = parse_network('[brokers.a]\nmqtt = "127.0.0.1:8001"\n')
    with pytest.raises(ConfigError, match=r"brokers.a.admin: found 127.0.0.1:8001, allowed is another address than"):
        endpoints(network, "a", "net.toml")


def test_a_broker_that_is_not_there_is_told_with_those_that_are() -> None:
    network = parse_network("[brokers.seattle]\n[brokers.denver]\n")
    with pytest.raises(ConfigError) as refused:
        endpoints(network, "seatle", "net.toml")
    assert str(refused.value) == (
        'net.toml: brokers: found no broker "seatle", allowed is one of seattle, denver; did you mean seattle?'
    )


def test_a_network_too_large_for_one_machine_is_told_only_when_it_runs_there() -> None:
    network = Network(brokers=tuple(Broker(name=f"b{number}") for number in range(1001)))
    assert endpoints(network, "b1000").overlay == local(8001)
    with pytest.raises(ConfigError, match=r"brokers.b1000.overlay: found 127.0.0.1:8001, allowed is another address"):
        endpoints_on_one_machine(network)
    huge = Network(brokers=tuple(Broker(name=f"b{number}") for number in range(58_000)))
    with pytest.raises(ConfigError, match=r"brokers.b57999.admin: found no port left for its default"):
        endpoints(huge, "b57999")


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("broker", False),
    ],
)
def test_only_what_is_surely_this_machine_counts_as_loopback(host: str, is_loopback: bool) -> None:
    assert Endpoint(host, 1).is_loopback() is is_loopback


@pytest.mark.parametrize(
    ("host", "dialled"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("::ffff:0.0.0.0", "::1"), ("10.0.0.1", "10.0.0.1"), ("here", "here")],
)
def test_what_means_all_addresses_is_dialled_on_the_loopback(host: str, dialled: str) -> None:
    assert Endpoint(host, 1883).dialled() == Endpoint(dialled, 1883)


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("0.0.0.0:1", "127.0.0.2:1", True),
        ("[::]:1", "127.0.0.2:1", True),
        ("Host:1", "host:1", True),
        ("a:1", "b:1", False),
    ],
)
def test_two_addresses_clash_when_one_machine_cannot_listen_on_both(one: str, other: str, clash: bool) -> None:
    def parsed(text: str) -> Endpoint:
        host, _, port = text.rpartition(":")
        return Endpoint(host.strip("[]"), int(port))

    assert parsed(one).clashes(parsed(other)) is clash
    assert parsed(other).clashes(parsed(one)) is clash


@pytest.mark.parametrize("kind", LISTENER_KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_listener_is_read_and_has_a_protocol_that_serves_it(kind: ListenerKind) -> None:
    certificate = '[security]\ncertificate = "server.pem"\nkey = "server.key"\n'
    network = parse_network(f'[brokers.a]\n{kind.name} = "127.0.0.1:9000"\n{certificate}')
    assert endpoints(network, "a").listeners[kind.name] == local(9000)
    assert parse_network(format_network(network)) == network
    assert kind.protocol in (MQTT, *PROTOCOLS)
