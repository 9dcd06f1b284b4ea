"""The network file: what a good one means, and what is said of a bad one."""

from pathlib import Path

import pytest

from overlane.errors import ConfigError
from overlane.network import (
    Broker,
    Crash,
    Cut,
    Defaults,
    Endpoint,
    Heal,
    Join,
    Leave,
    Link,
    Lossy,
    Network,
    Partition,
    Publisher,
    Restart,
    Simulation,
    Slow,
    Subscriber,
    Topic,
    format_network,
    parse_duration,
    parse_network,
    parse_rate,
    parse_size,
    read_network,
)
from overlane.network.classes import may_cross
from overlane.network.schema import Back, Border, Emulated, Plug, Unplug, Uplink

MS = 1_000_000
SECOND = 1000 * MS
EXAMPLES = Path(__file__).parent.parent / "examples"

EVERYTHING = """
[simulation]
duration = "2m"
seed = 7
settle = "1.5s"

[network]
routing = "single"
scheduling = "laxity"
ping_interval = "250ms"

[brokers.seattle]
failure = 0.01
latitude = 47.6
longitude = -122
clock_offset = "-3ms"
clock_drift_ppm = 20
mqtt = "10.0.0.1:1883"
overlay = "seattle.example.org:7000"
admin = "[::1]:8080"

[brokers.denver]
[brokers.orlando]

[[links]]
ends = ["seattle", "denver"]
latency = "14ms"
jitter = "500us"
loss = 0.001
rate = "1.5Mbit"
failure = 0
queue = "64KiB"
transport = "stream"

[[links]]
ends = ["denver", "orlando"]
latency = "0s"

[topics."alarms/#"]
deadline = "60ms"
reliability = "reliable"
routing = "multipath"
paths = 3
lifespan = "1h"
history = "all"

[topics."+/reports"]
deadline = "1d"
history = 5

[[publishers]]
broker = "seattle"
topic = "alarms/1"
rate = 0.5
size = "1KiB"
start = "1s"
stop = "2s"

[[subscribers]]
broker = "denver"
topic = "#"
stop = "9s"

[[events]]
at = "20s"
heal = "all"
[[events]]
at = "1s"
slow = ["denver", "seattle"]
latency = "80ms"
[[events]]
at = "2s"
loss = ["seattle", "denver"]
rate = 0.3
[[events]]
at = "3s"
cut = ["seattle", "denver"]
[[events]]
at = "4s"
partition = ["seattle", "orlando"]
[[events]]
at = "5s"
heal = ["seattle", "denver"]
[[events]]
at = "6s"
crash = "denver"
[[events]]
at = "7s"
restart = "denver"
[[events]]
at = "7s"
join = "orlando"
[[events]]
at = "8s"
leave = "orlando"
"""


def test_every_field_means_what_the_reference_says() -> None:
    assert parse_network(EVERYTHING) == Network(
        brokers=(
            Broker(
                name="seattle",
                failure=0.01,
                latitude=47.6,
                longitude=-122.0,
                clock_offset_ns=-3 * MS,
                clock_drift_ppm=20.0,
                listeners={"mqtt": Endpoint("10.0.0.1", 1883)},
                overlay=Endpoint("seattle.example.org", 7000),
                admin=Endpoint("::1", 8080),
            ),
            Broker(name="denver"),
            Broker(name="orlando"),
        ),
        links=(
            Link(
                ends=("seattle", "denver"),
                latency_ns=14 * MS,
                jitter_ns=MS // 2,
                loss=0.001,
                rate_bps=1_500_000,
                failure=0.0,
                queue_bytes=65_536,
                transport="stream",
            ),
            Link(ends=("denver", "orlando"), latency_ns=0),
        ),
        topics=(
            Topic(
                filter="alarms/#",
                deadline_ns=60 * MS,
                reliability="reliable",
                routing="multipath",
                paths=3,
                lifespan_ns=3600 * SECOND,
                history="all",
            ),
            Topic(filter="+/reports", deadline_ns=86_400 * SECOND, routing="single", history=5),
        ),
        publishers=(
            Publisher(
                broker="seattle", topic="alarms/1", rate_hz=0.5, size_bytes=1024, start_ns=SECOND, stop_ns=2 * SECOND
            ),
        ),
        subscribers=(Subscriber(broker="denver", topic="#", stop_ns=9 * SECOND),),
        events=(
            Slow(1 * SECOND, ("denver", "seattle"), 80 * MS),
            Lossy(2 * SECOND, ("seattle", "denver"), 0.3),
            Cut(3 * SECOND, ("seattle", "denver")),
            Partition(4 * SECOND, ("seattle", "orlando")),
            Heal(5 * SECOND, ("seattle", "denver")),
            Crash(6 * SECOND, "denver"),
            Restart(7 * SECOND, "denver"),
            Join(7 * SECOND, "orlando"),
            Leave(8 * SECOND, "orlando"),
            Heal(20 * SECOND, None),
        ),
        simulation=Simulation(duration_ns=120 * SECOND, seed=7, settle_ns=1500 * MS),
        defaults=Defaults(routing="single", scheduling="laxity", ping_interval_ns=250 * MS),
    )


def test_what_is_left_out_has_its_default() -> None:
    network = parse_network("""
        [brokers.a]
        [brokers.b]
        [[links]]
        ends = ["a", "b"]
        latency = "1ms"
        [topics.t]
        deadline = "1s"
    """)
    assert network.brokers[0] == Broker(name="a", failure=0.001, clock_offset_ns=0, clock_drift_ppm=0.0)
    assert network.links[0] == Link(
        ends=("a", "b"), latency_ns=MS, jitter_ns=0, loss=0.0, rate_bps=None, failure=0.002, queue_bytes=262_144
    )
    assert network.links[0].transport == "datagram"
    assert network.topics[0] == Topic(
        filter="t", deadline_ns=SECOND, reliability="best-effort", routing="adaptive", paths=2, history=0
    )
    assert network.simulation == Simulation(duration_ns=60 * SECOND, seed=0, settle_ns=10 * SECOND)
    assert network.defaults == Defaults(routing="adaptive", scheduling="edf-shed", ping_interval_ns=500 * MS)


def test_a_broker_that_joins_before_it_ever_left_is_absent_at_the_start() -> None:
    network = parse_network("""
        [brokers]
        a = {}
        b = {}
        [[events]]
        at = "2s"
        join = "a"
        [[events]]
        at = "1s"
        leave = "b"
        [[events]]
        at = "3s"
        join = "b"
    """)
    assert network.absent_at_start() == ("a",)


@pytest.mark.parametrize("example", sorted(EXAMPLES.rglob("*.toml")), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_example_is_a_good_file(example: Path) -> None:
    network = read_network(example)
    assert parse_network(format_network(network)) == network


GOOD = """\
[brokers.seattle]
[brokers.denver]
[brokers.orlando]
[[links]]
ends = ["seattle", "denver"]
latency = "14ms"
"""
DURATION = 'a duration such as "14ms", "1.5s" or "2h"'
POSITIVE = 'a duration above 0 such as "60ms" or "1.5s"'
TABLES = (
    "access, advertisements, brokers, coordination, dds, events, federation, gateways, items, limits, links, mediation,"
    " names, network, otlp, placement, publishers, recovery, reservations, routing, security, simulation, subscribers,"
    " telemetry, topics, web"
)
LINK_FIELDS = "dscp, emulate, encrypted, ends, failure, jitter, latency, loss, queue, rate, transport"
HAPPENINGS = "exactly one of slow, loss, cut, partition, heal, crash, restart, leave, join, unplug, plug"


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("x", "7: found a mistake in its syntax (Expected '=' after a key in a key/value pair), allowed is TOML 1.0"),
        (
            "[simulation]\nseed = 1\nseed = 2",
            "9: found a mistake in its syntax (Cannot overwrite a value), allowed is TOML 1.0",
        ),
        ("[link]", f"7: link: found an unknown table, allowed is {TABLES}; did you mean links?"),
        (
            "[brokers.denver]\n",
            "7: found a mistake in its syntax (Cannot declare ('brokers', 'denver') twice), allowed is TOML 1.0",
        ),
        ("latncy = 3", f"7: links[0].latncy: found an unknown field, allowed is {LINK_FIELDS}; did you mean latency?"),
        ("jitter = 14", f"7: links[0].jitter: found 14, allowed is {DURATION}"),
        ('jitter = "14"', f'7: links[0].jitter: found "14", allowed is {DURATION}'),
        ('jitter = "-1ms"', f'7: links[0].jitter: found "-1ms", allowed is {DURATION}'),
        ('jitter = "0.1ns"', f'7: links[0].jitter: found "0.1ns", allowed is {DURATION}'),
        ("loss = 1.5", "7: links[0].loss: found 1.5, allowed is a number from 0 to 1"),
        ("loss = nan", "7: links[0].loss: found nan, allowed is a number from 0 to 1"),
        ("loss = true", "7: links[0].loss: found true, allowed is a number from 0 to 1"),
        ('rate = "fast"', '7: links[0].rate: found "fast", allowed is a rate such as "64kbit", "100Mbit" or "1Gbit"'),
        ("queue = 0", '7: links[0].queue: found 0, allowed is a number of bytes above 0 such as 65536 or "256KiB"'),
        (
            'transport = "steam"',
            '7: links[0].transport: found "steam", allowed is "datagram" or "stream", or an MQTT or AMQP broker that '
            'carries it and a prefix such as "mqtt://10.0.0.5:1883/overlane"; did you mean "stream"?',
        ),
        (
            '[[links]]\nends = ["denver", "orland"]\nlatency = "1ms"',
            '8: links[1].ends: found ["denver", "orland"], allowed is a list of two different brokers;'
            ' did you mean "orlando"?',
        ),
        (
            '[[links]]\nends = ["denver", "denver"]\nlatency = "1ms"',
            '8: links[1].ends: found ["denver", "denver"], allowed is a list of two different brokers',
        ),
        (
            '[[links]]\nends = ["denver", "seattle"]\nlatency = "1ms"',
            '8: links[1].ends: found ["denver", "seattle"], allowed is one link between two brokers,'
            " and line 4 has it already",
        ),
        ('[[links]]\nends = ["denver", "orlando"]', f"7: links[1].latency: found nothing, allowed is {DURATION}"),
        ("[brokers.boise]\nlatitude = 91", "8: brokers.boise.latitude: found 91, allowed is degrees from -90 to 90"),
        (
            '[brokers."a b"]',
            "7: brokers.\"a b\": found \"a b\", allowed is a name of 1 to 64 letters, digits, '-', '_' and '.',"
            " with a letter or digit first",
        ),
        (
            '[brokers.boise]\nmqtt = "here:99999"',
            '8: brokers.boise.mqtt: found "here:99999", allowed is host:port such as "10.0.0.1:1883" or "[::1]:1883"',
        ),
        (
            '[topics."a/#/b"]\ndeadline = "1s"',
            '7: topics."a/#/b": found "a/#/b", allowed is an MQTT topic filter such as "alarms/#" or "sites/+/alarms"',
        ),
        ('[topics.t]\ndeadline = "0s"', f'8: topics.t.deadline: found "0s", allowed is {POSITIVE}'),
        (
            '[topics.t]\ndeadline = "1s"\nrouting = "multi-path"',
            '9: topics.t.routing: found "multi-path", allowed is "single", "multipath", "flood", "adaptive" or'
            ' "thrifty"; did you mean "multipath"?',
        ),
        (
            '[topics.t]\ndeadline = "1s"\npaths = 0',
            "9: topics.t.paths: found 0, allowed is a whole number from 1 to 16",
        ),
        (
            '[topics.t]\ndeadline = "1s"\nhistory = "some"',
            '9: topics.t.history: found "some", allowed is a whole number from 0 to 1000000, or "all"',
        ),
        (
            '[topics.t]\ndeadline = "1s"\nhistory = "all"',
            '9: topics.t.history: found "all", allowed is a whole number where there is no lifespan,'
            " or it would grow without limit",
        ),
        (
            '[[publishers]]\nbroker = "seattle"\ntopic = "a/#"\nrate = 1',
            '9: publishers[0].topic: found "a/#", allowed is a topic without wildcards such as "alarms/1"',
        ),
        (
            '[[publishers]]\nbroker = "seattle"\ntopic = "a"\nrate = 0',
            "10: publishers[0].rate: found 0, allowed is a number above 0, at most 10000000 a second",
        ),
        (
            '[[publishers]]\nbroker = "seattle"\ntopic = "a"\nrate = 1\nsize = "2MiB"',
            '11: publishers[0].size: found "2MiB", allowed is a number of bytes up to 1 MiB such as 64 or "4KiB"',
        ),
        (
            '[[subscribers]]\nbroker = "boise"\ntopic = "a"',
            '8: subscribers[0].broker: found "boise", allowed is the name of a broker',
        ),
        (
            '[[subscribers]]\nbroker = "denver"\ntopic = "a"\nstart = "2s"\nstop = "2s"',
            '11: subscribers[0].stop: found "2s", allowed is a duration longer than start',
        ),
        ("[subscribers]", "7: subscribers: found a table, allowed is an array of tables, [[subscribers]]"),
        ('[[events]]\nat = "1s"', f"7: events[0]: found nothing that happens, allowed is {HAPPENINGS}"),
        (
            '[[events]]\nat = "1s"\ncrash = "denver"\nleave = "denver"',
            f"7: events[0]: found crash and leave, allowed is {HAPPENINGS}",
        ),
        ('[[events]]\ncrash = "denver"', f"7: events[0].at: found nothing, allowed is {DURATION}"),
        (
            '[[events]]\nat = "1s"\ncut = ["seattle", "orlando"]',
            '9: events[0].cut: found ["seattle", "orlando"], allowed is a list of the two ends of a link',
        ),
        (
            '[[events]]\nat = "1s"\nslow = ["seattle", "denver"]',
            f"7: events[0].latency: found nothing, allowed is {DURATION}",
        ),
        (
            '[[events]]\nat = "1s"\ncut = ["seattle", "denver"]\nlatency = "1s"',
            "10: events[0].latency: found an unknown field, allowed is at, cut",
        ),
        (
            '[[events]]\nat = "1s"\nheal = "al"',
            '9: events[0].heal: found "al", allowed is a list of the two ends of a link, or "all"',
        ),
        (
            '[[events]]\nat = "1s"\npartition = ["seattle", "denver", "orlando"]',
            '9: events[0].partition: found ["seattle", "denver", "orlando"], allowed is a list of different brokers,'
            " not all of them",
        ),
        (
            '[network]\nscheduling = "edf-shred"',
            '8: network.scheduling: found "edf-shred", allowed is "edf-shed", "edf" or "laxity";'
            ' did you mean "edf-shed"?',
        ),
        ("[simulation]\nseed = -1", "8: simulation.seed: found -1, allowed is a whole number from 0 to 2^64 - 1"),
        (
            "[simulation]\nseed = 0x" + "f" * 5000,
            "8: simulation.seed: found a huge number, allowed is a whole number from 0 to 2^64 - 1",
        ),
        ("[routing]\ngrow_above = 2", "8: routing.grow_above: found 2, allowed is a number from 0.05 to 1"),
        (
            "[routing]\nshrink_below = 0.8",
            "8: routing.shrink_below: found 0.8, allowed is no more than grow_above",
        ),
        (
            '[routing]\ngrow_after = "1ms"',
            '8: routing.grow_after: found "1ms", allowed is a duration from 1s to 24h, as in "30s"',
        ),
        ("simulation = 1979-05-27", f"7: links[0].simulation: found an unknown field, allowed is {LINK_FIELDS}"),
    ],
)
def test_a_bad_file_is_told_where_what_and_what_instead(added: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(GOOD + added, "net.toml")
    assert str(refused.value) == f"net.toml:{message}"


def test_all_faults_are_told_at_once_by_line() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(GOOD.replace("14ms", "14 ms") + "loss = 2\n[brokers.boise]\nfailure = 3\n", "net.toml")
    assert str(refused.value).splitlines() == [
        f'net.toml:6: links[0].latency: found "14 ms", allowed is {DURATION}',
        "net.toml:7: links[0].loss: found 2, allowed is a number from 0 to 1",
        "net.toml:9: brokers.boise.failure: found 3, allowed is a number from 0 to 1",
    ]


def test_hundreds_of_faults_do_not_scroll_the_first_away() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(GOOD + "[[publishers]]\n" * 100, "net.toml")
    lines = str(refused.value).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "net.toml: and 280 more"
    assert len(refused.value.faults) == 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "net.toml: brokers: found nothing, allowed is at least one table [brokers.NAME]"),
        (b"\n\n[brokers.caf\xe9]", "net.toml:3: found the byte 0xe9, allowed is text in UTF-8"),
        (b"a = " + b"[" * 5000, "net.toml: found brackets nested too deeply, allowed is TOML 1.0"),
        (b"\na = '", 'net.toml:2: found a mistake in its syntax (Expected "\'"), allowed is TOML 1.0'),
    ],
)
def test_a_file_that_is_no_network_at_all_is_told_so(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(content, "net.toml")
    assert str(refused.value) == message


def test_a_file_that_cannot_be_read_is_told_so(tmp_path: Path) -> None:
    for path, reason in [(tmp_path / "none.toml", "No such file or directory"), (tmp_path, "Is a directory")]:
        with pytest.raises(ConfigError) as refused:
            read_network(path)
        assert str(refused.value) == f"{path}: found no way to read it ({reason}), allowed is a readable TOML file"


def test_units_are_exact() -> None:
    assert [parse_duration(text) for text in ("0s", "500us", "1.5s", "2h", "-3ms", "0.000000001s")] == [
        0,
        500_000,
        1_500_000_000,
        7_200 * SECOND,
        -3 * MS,
        1,
    ]
    assert [parse_rate(text) for text in ("64kbit", "100Mbit", "1Gbit", "9600bit")] == [64_000, 10**8, 10**9, 9_600]
    assert [parse_size(text) for text in ("64KiB", "1MB", "0.5KiB", "7B")] == [65_536, 10**6, 512, 7]


@pytest.mark.parametrize(
    "text", ["", "ms", "1", "1 ms", "1e3ms", ".5s", "5.s", "+1s", "1S", "1min", "٣s", "0.5ns", "99999d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not|finer|longer"):
        parse_duration(text)


# Brokers that run: links and borders


def test_a_link_is_emulated_as_it_is_or_as_a_table_says() -> None:
    network = parse_network(
        """
        [brokers.a]
        reach = ["10.0.0.1:7001", "a.example:7001"]
        [brokers.b]
        reach = []
        [brokers.c]
        [[links]]
        ends = ["a", "b"]
        latency = "14ms"
        rate = "1Mbit"
        emulate = true
        [[links]]
        ends = ["b", "c"]
        latency = "20ms"
        emulate = { latency = "80ms", loss = 0.01 }
        """
    )
    assert [link.emulate for link in network.links] == [
        Emulated(latency_ns=14_000_000, rate_bps=1_000_000),
        Emulated(latency_ns=80_000_000, loss=0.01),
    ]
    assert [broker.reach for broker in network.brokers] == [
        (Endpoint("10.0.0.1", 7001), Endpoint("a.example", 7001)),
        (),
        None,
    ]


def test_borders_say_what_may_cross() -> None:
    network = parse_network(
        """
        [brokers.a]
        [brokers.b]
        [[federation]]
        broker = "a"
        leave = ["alarms/#"]
        [[federation]]
        broker = "a"
        with = "b"
        enter = []
        """
    )
    assert network.federation == (Border(broker="a", leave=("alarms/#",)), Border(broker="a", other="b", enter=()))


def test_a_border_of_a_domain_is_that_of_its_brokers_and_within_it_everything_passes() -> None:
    network = parse_network(
        """
        [brokers.one]
        domain = "plant"
        [brokers.two]
        domain = "plant"
        [brokers.office]
        [brokers.visitors]
        [[federation]]
        broker = "domain:plant"
        with = "domain:office"
        leave = ["alarms/#"]
        enter = []
        [[federation]]
        broker = "office"
        with = "domain:plant"
        enter = ["alarms/fire"]
        """
    )
    crossing = {
        (topic, source, destination)
        for topic in ("alarms/fire", "alarms/1", "private")
        for source in ("one", "office")
        for destination in ("two", "office", "visitors")
        if source != destination and may_cross(network, topic, source, destination)
    }
    assert crossing == {
        ("alarms/fire", "one", "two"),
        ("alarms/1", "one", "two"),
        ("private", "one", "two"),
        ("alarms/fire", "one", "office"),
        ("alarms/fire", "office", "visitors"),
        ("alarms/1", "office", "visitors"),
        ("private", "office", "visitors"),
    }
    assert parse_network(format_network(network)) == network


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[brokers.a]\n[[federation]]\nbroker = "domain:b"\nenter = []', 'federation[0].broker: found "domain:b"'),
        ('[brokers.a]\n[[federation]]\nbroker = "a"', "found nothing that may cross, allowed is leave, enter or both"),
        ('[brokers.a]\n[[federation]]\nbroker = "b"\nenter = []', 'federation[0].broker: found "b"'),
        (
            '[brokers.a]\n[[federation]]\nbroker = "a"\nwith = "c"\nenter = []',
            'allowed is the name of a broker, "domain:NAME", or "*"',
        ),
        ("[brokers.a]\n[security]\noverlay_tls = true", "true only with certificate, key and client_ca"),
    ],
)
def test_wrong_borders_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(text)
    assert said in str(refused.value)


def test_a_link_says_how_it_is_back_and_a_broker_how_it_is_connected() -> None:
    text = """
[brokers.a]
[brokers.b.uplinks.fibre]
[brokers.b.uplinks.radio]
latency = "30ms"
jitter = "5ms"
loss = 0.01
rate = "5Mbit"
queue = "32KiB"
[[links]]
ends = ["a", "b"]
latency = "10ms"
rate = "10Mbit"
back = { latency = "40ms", loss = 0.02 }
[[events]]
at = "1s"
unplug = ["b", "radio"]
[[events]]
at = "2s"
plug = ["b", "radio"]
"""
    network = parse_network(text)
    (link,) = network.links
    assert link.back == Back(latency_ns=40_000_000, loss=0.02, rate_bps=10_000_000)
    assert (link.from_end("a"), link.from_end("b")) == (link, link.back)
    assert network.brokers[1].uplinks == (
        Uplink(name="fibre"),
        Uplink(
            name="radio",
            latency_ns=30_000_000,
            jitter_ns=5_000_000,
            loss=0.01,
            rate_bps=5_000_000,
            queue_bytes=32 * 1024,
        ),
    )
    assert network.events == (Unplug(10**9, "b", "radio"), Plug(2 * 10**9, "b", "radio"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[[links]]\nends = ["a", "b"]\nlatency = "1ms"\nback = "2ms"',
            'links[0].back: found "2ms", allowed is a table',
        ),
        (
            '[[links]]\nends = ["a", "b"]\nlatency = "1ms"\nback = { latenzy = "2ms" }',
            "links[0].back.latenzy: found an unknown field, allowed is jitter, latency, loss, queue, rate;"
            " did you mean latency?",
        ),
        (
            '[brokers.c.uplinks."a b"]',
            'brokers.c.uplinks."a b": found "a b", allowed is a name of 1 to 64 letters',
        ),
        (
            '[brokers.c.uplinks.radio]\n[[events]]\nat = "1s"\nunplug = ["c", "fibre"]',
            'events[0].unplug: found ["c", "fibre"], allowed is a list of a broker and one of its uplinks',
        ),
        (
            "[brokers.c]\nuplinks = { " + ", ".join(f"u{number} = {{}}" for number in range(9)) + " }",
            "brokers.c.uplinks: found a table, allowed is at most 8 of them",
        ),
    ],
)
def test_wrong_uplinks_and_ways_back_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(f"[brokers.a]\n[brokers.b]\n{text}\n")
    assert said in str(refused.value)
