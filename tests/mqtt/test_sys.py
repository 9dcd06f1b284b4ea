"""`$SYS`: what the server tells of itself, and who gets it."""

from clients import Bench

from overlane.pubsub.access import Rule


def test_wildcards_at_the_front_do_not_reach_the_servers_own_topics() -> None:
    # MQTT-4.7.2-1
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("#", "+/broker/uptime", "+/#")
    bench.wait(30)
    assert alice.got() == []


def test_the_server_tells_of_itself_to_who_asks_and_goes_on_telling() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("$SYS/#")
    told = {got.topic: got for got in alice.got()}
    assert told["$SYS/broker/name"].payload == b"seattle"
    assert told["$SYS/broker/clients/connected"].retain
    assert len(told) == 14
    bench.wait(10)
    later = {got.topic: got for got in alice.got()}
    assert later["$SYS/broker/uptime"].payload == b"10 seconds"
    assert later["$SYS/broker/clients/connected"].payload == b"1"
    assert later["$SYS/broker/subscriptions/count"].payload == b"1"
    assert int(later["$SYS/broker/bytes/sent"].payload) > 0
    assert not later["$SYS/broker/uptime"].retain


def test_wildcards_behind_the_first_level_do() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("$SYS/broker/clients/+")
    assert sorted(got.topic for got in alice.got()) == [
        "$SYS/broker/clients/connected",
        "$SYS/broker/clients/disconnected",
        "$SYS/broker/clients/total",
    ]


def test_what_the_server_tells_of_itself_is_not_stored() -> None:
    bench = Bench()
    bench.wait(100)
    assert bench.store == {}


def test_it_is_told_only_to_who_may_read_it() -> None:
    bench = Bench(
        rules=[Rule(user="anonymous", subscribe=("#", "$SYS/broker/uptime"))],
    )
    alice = bench.client("alice")
    assert alice.subscribe("$SYS/#", "$SYS/broker/uptime", "$SYS/broker/name", "#") == [0x87, 0, 0x87, 0]
    assert [got.topic for got in alice.got()] == ["$SYS/broker/uptime"]
