"""The network file: whatever it holds, it is read or refused, and what is written is read as the same."""

import tomllib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from overlane.errors import ConfigError
from overlane.network import (
    Broker,
    Crash,
    Cut,
    Defaults,
    Endpoint,
    Event,
    Gateway,
    Heal,
    Join,
    Leave,
    Link,
    Lossy,
    Network,
    Partition,
    Publisher,
    Restart,
    Security,
    Simulation,
    Slow,
    Subscriber,
    Topic,
    format_network,
    parse_network,
)
from overlane.network.listeners import LISTENER_KINDS
from overlane.network.schema import (
    CLIENT_CERTIFICATES,
    ROLES,
    ROUTINGS,
    SCHEDULINGS,
    TRANSPORTS,
    Back,
    Border,
    Coordination,
    CopiesOf,
    Emulated,
    Plug,
    Recovery,
    RoutingTier,
    Scoring,
    Telemetry,
    Unplug,
    Uplink,
    Web,
)
from overlane.network.schema.logins import LoginHook, Tokens
from overlane.network.syntax.lines import LineIndex
from overlane.pubsub.access import Rule
from overlane.pubsub.limits import EXPIRY_S_NEVER, Limits
from overlane.topic_names import DIRECTIONS, NameRule

EXAMPLE = Path(__file__).parent.parent / "examples" / "five-cities.toml"
SERVING = """
[security]
anonymous = true
users = "users.txt"
client_certificate = "required"
[[access]]
user = "alice"
publish = ["a/%u"]
[limits]
packet = "1MiB"
queue = "2MiB"
session_expiry_max = "1d"
messages_per_second = 5
[coordination]
zookeeper = "zk1:2181"
path = "/plant"
servers = 1
user = "overlane"
password_file = "password"
ca = "ca.pem"
[recovery]
silence = "2s"
on_takeover = "./move-address now"
together = [["a", "b"]]
[recovery.brokers.a]
hosts = ["b"]
[recovery.scoring]
cpu = 2.0
memory_needed = "1GiB"
bandwidth_needed = "2Mbit"
battery_needed = "2h"
command = ["true"]
[routing]
strategy = "topics"
brokers_min = 2
brokers_max = 3
rate = "1Gbit"
grow_above = 0.6
grow_after = "20s"
shrink_below = 0.4
shrink_after = "10m"
launcher = "command"
command = ["scale", "up"]
[telemetry]
enabled = true
file = "1MiB"
file_age = "1m"
disk = "1GiB"
deliveries_per_second = 10
[[gateways]]
name = "plant"
broker = "a"
to = "mqtt://10.0.0.5:1883,other"
version = "3.1.1"
qos = 1
backlog_rate = 100
user = "bridge"
password_file = "password"
[[gateways.topics]]
overlay = "plant/+/#"
local = "+/x/#"
direction = "in"
[[mediation]]
name = "calm"
topic = "a/+"
where = "t > 5"
deadband = { field = "t", change = 0.5 }
every = "1s"
set_fields = { c = "t * 2", d = true }
remove_fields = ["t"]
set_properties = { unit = "C" }
encode = "cbor"
rename = "b/{2-}"
call = "a.b:c"
[[dds]]
name = "hall"
broker = "a"
domain = 3
topics = ["x*"]
format = "json"
[[names]]
domain = "a"
local = "x/#"
overlay = "y/#"
[web]
origins = ["https://app.example"]
url = "https://events.example"
callback_networks = ["10.0.0.0/8"]
connections = 10
"""

durations = st.integers(0, 10**16)
shares = st.floats(0, 1)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
levels = st.text(st.characters(exclude_characters="+#/\0", exclude_categories=["Cs"]), max_size=6)
topic_names = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
topic_filters = st.lists(levels | st.just("+"), max_size=3).map(lambda parts: "/".join([*parts, "#"])) | topic_names

printable = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=9)
paths = st.none() | printable
patterns = st.lists(
    st.sampled_from(["#", "+/a", "%u/#", "x/%c/%u", "$SYS/#"])
    | topic_filters.filter(lambda text: "%u" not in text and "%c" not in text),
    max_size=4,
).map(tuple)
rules = st.builds(Rule, user=st.sampled_from(["*", "anonymous"]) | printable, publish=patterns, subscribe=patterns)
limits = st.builds(
    Limits,
    connections=st.integers(1, 10**7),
    packet_bytes=st.integers(128, 2**28),
    connect_within_ns=st.integers(10**6, 10**13),
    queue_bytes=st.integers(2**28, 2**40),
    messages_per_second=st.integers(0, 10**9),
    keep_alive_s_max=st.integers(0, 65_535),
    session_expiry_s_max=st.integers(0, 10**8) | st.just(EXPIRY_S_NEVER),
    retained_bytes=st.integers(0, 2**40),
    store_bytes=st.just(0) | st.integers(2**20, 2**40),
)
webs = st.builds(
    Web,
    origins=st.lists(st.sampled_from(["*", "https://app.example", "http://127.0.0.1:8080"]), max_size=2).map(tuple),
    url=st.none() | st.just("https://events.example"),
    callback_networks=st.lists(st.sampled_from(["10.0.0.0/8", "fc00::/7"]), max_size=2).map(tuple),
    connections=st.integers(1, 100_000),
)
telemetries = st.builds(
    Telemetry,
    enabled=st.none() | st.booleans(),
    file_bytes=st.integers(2**16, 2**30),
    file_age_ns=st.integers(10**8, 86_400 * 10**9),
    disk_bytes=st.integers(2**20, 2**40),
    deliveries_per_second=st.integers(0, 10_000),
)


tokens = st.builds(
    Tokens,
    keys=printable,
    issuer=st.none() | printable,
    audience=st.none() | printable,
    user_claim=printable,
    leeway_ns=st.integers(0, 3_600 * 10**9),
)
hooks = st.builds(
    LoginHook,
    url=st.sampled_from(["http://localhost", "https://id.example.com:8443/login?for=mqtt"]),
    ca=st.none() | printable,
    timeout_ns=st.integers(10**7, 30 * 10**9),
    remember_ns=st.integers(0, 86_400 * 10**9),
)


@st.composite
def securities(draw: st.DrawFn) -> Security:
    has_certificate = draw(st.booleans())
    has_client_ca = has_certificate and draw(st.booleans())
    users, jwt, hook = draw(paths), draw(st.none() | tokens), draw(st.none() | hooks)
    has_users = users or has_client_ca or jwt or hook
    return Security(
        anonymous=draw(st.sampled_from([None, True, False] if has_users else [None, True])),
        jwt=jwt,
        hook=hook,
        users=users,
        certificate=draw(printable) if has_certificate else None,
        key=draw(printable) if has_certificate else None,
        client_ca=draw(printable) if has_client_ca else None,
        client_certificate=draw(st.sampled_from(CLIENT_CERTIFICATES)) if has_client_ca else "required",
        admin_token=draw(paths),
        overlay_secret=draw(paths),
        overlay_tls=has_client_ca and draw(st.booleans()),
        overlay_open=draw(st.booleans()),
    )


uplinks = st.builds(
    Uplink,
    name=names,
    latency_ns=durations,
    jitter_ns=durations,
    loss=shares,
    rate_bps=st.none() | st.integers(1, 10**12),
    queue_bytes=st.integers(1, 2**30),
)


@st.composite
def listeners(draw: st.DrawFn, has_certificate: bool) -> dict[str, Endpoint]:
    return {
        kind.name: Endpoint(draw(st.sampled_from(["::1", "a.b", "0.0.0.0"])), 1_000 + number)
        for number, kind in enumerate(LISTENER_KINDS)
        if (has_certificate or not kind.is_tls) and draw(st.booleans())
    }


coordinations = st.builds(
    Coordination,
    zookeeper=st.sampled_from(["embedded", "zk1:2181", "10.0.0.1:2181,[::1]:2182"]),
    path=st.sampled_from(["/", "/overlane", "/a/b c"]),
    servers=st.integers(1, 9),
)
weights = st.integers(1, 100).map(float)
recoveries = st.builds(
    Recovery,
    mirrors=st.just(0),
    silence_ns=st.integers(100, 5_000).map(lambda count: count * 10**6),
    on_takeover=st.lists(printable, max_size=2).map(tuple),
    together=st.lists(st.sampled_from([("a", "b"), ("b", "c", "d.e")]), max_size=2).map(tuple),
    brokers=st.sets(st.sampled_from(["a", "b.c"])).map(
        lambda names: tuple(CopiesOf(name=name, hosts=("b", "c-1")) for name in sorted(names))
    ),
    scoring=st.builds(
        Scoring,
        cpu=weights,
        battery=weights,
        cpu_needed=weights,
        memory_needed_bytes=st.integers(0, 10**12),
        bandwidth_needed_bps=st.integers(1, 10**12),
        battery_needed_ns=st.integers(0, 10**15),
        command=st.lists(printable, max_size=2).map(tuple),
    ),
)
routing_tiers = st.builds(
    RoutingTier,
    strategy=st.sampled_from(["topics", "latency", "least-loaded", "my.own:place"]),
    brokers_min=st.integers(1, 4),
    brokers_max=st.integers(4, 9),
    rate_bps=st.none() | st.integers(1, 10**12),
    grow_above=st.floats(0.5, 1),
    grow_after_ns=st.integers(1, 86_400).map(lambda count: count * 10**9),
    shrink_below=st.floats(0.05, 0.5),
    shrink_after_ns=st.integers(1, 86_400).map(lambda count: count * 10**9),
    launcher=st.none() | st.just("local"),
    command=st.lists(printable, max_size=3).map(tuple),
)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    known = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    brokers = st.sampled_from(known)
    pairs = [(one, other) for i, one in enumerate(known) for other in known[i + 1 :]]
    joined = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    ends = st.sampled_from(joined)
    starts = st.integers(0, 10**10)
    stops = st.none() | st.integers(10**10 + 1, 10**12)
    optional_degrees = st.none() | st.floats(-90, 90)
    routings = st.sampled_from(ROUTINGS)
    connected = {name: draw(st.lists(uplinks, max_size=3, unique_by=lambda one: one.name)) for name in known[1:]}
    connected[known[0]] = [Uplink(name="fibre")]
    plugs = st.sampled_from([(name, one.name) for name, ones in connected.items() for one in ones])
    events: st.SearchStrategy[Event] = st.one_of(
        st.builds(Slow, durations, ends, durations),
        st.builds(Lossy, durations, ends, shares),
        st.builds(Cut, durations, ends),
        st.builds(Heal, durations, st.none() | ends),
        st.builds(Partition, durations, brokers.map(lambda name: (name,))),
        st.builds(Crash, durations, brokers),
        st.builds(Restart, durations, brokers),
        st.builds(Leave, durations, brokers),
        st.builds(Join, durations, brokers),
        st.builds(lambda at_ns, named: Unplug(at_ns, *named), durations, plugs),
        st.builds(lambda at_ns, named: Plug(at_ns, *named), durations, plugs),
    )
    security = draw(securities())
    carriers = {
        pair: draw(st.sampled_from([None, "mqtts://h:1/a/b"])) if security.overlay_secret is not None else None
        for pair in joined
    }
    return Network(
        brokers=tuple(
            Broker(
                name=name,
                failure=draw(shares),
                latitude=draw(optional_degrees),
                longitude=draw(optional_degrees),
                clock_offset_ns=draw(st.integers(-(10**12), 10**12)),
                clock_drift_ppm=draw(st.floats(-1e5, 1e5)),
                listeners=draw(listeners(has_certificate=security.certificate is not None)),
                uplinks=tuple(connected[name]),
                domain=draw(st.just("") | names),
                role=draw(st.sampled_from(ROLES)),
                reach=draw(st.sampled_from([None, (), (Endpoint("a.b", 7), Endpoint("::1", 8))])),
                admin=None if security.admin_token is None else draw(st.sampled_from([None, Endpoint("0.0.0.0", 3)])),
            )
            for name in known
        ),
        links=tuple(
            Link(
                ends=pair,
                latency_ns=draw(durations),
                loss=draw(shares),
                rate_bps=draw(st.none() | st.integers(1, 10**12)),
                queue_bytes=draw(st.integers(1, 2**30)),
                transport=draw(st.sampled_from(TRANSPORTS)) if (carrier := carriers[pair]) is None else "stream",
                carrier=carrier,
                back=draw(
                    st.none()
                    | st.builds(
                        Back,
                        latency_ns=durations,
                        jitter_ns=durations,
                        loss=shares,
                        rate_bps=st.none() | st.integers(1, 10**12),
                        queue_bytes=st.integers(1, 2**30),
                    )
                ),
                emulate=draw(
                    st.none()
                    | st.builds(
                        Emulated,
                        latency_ns=durations,
                        jitter_ns=durations,
                        loss=shares,
                        rate_bps=st.none() | st.integers(1, 10**12),
                    )
                ),
            )
            for pair in joined
        ),
        topics=tuple(
            Topic(
                filter=text,
                deadline_ns=draw(st.integers(1, 10**12)),
                routing=draw(routings),
                lifespan_ns=draw(st.integers(1, 10**12)),
                history=draw(st.integers(0, 9) | st.just("all")),
            )
            for text in draw(st.lists(topic_filters, max_size=3, unique=True))
        ),
        publishers=tuple(
            draw(
                st.lists(
                    st.builds(
                        Publisher,
                        broker=brokers,
                        topic=topic_names,
                        rate_hz=st.floats(0.001, 1e6),
                        size_bytes=st.integers(0, 2**20),
                        start_ns=starts,
                        stop_ns=stops,
                    ),
                    max_size=3,
                )
            )
        ),
        subscribers=tuple(
            draw(
                st.lists(
                    st.builds(Subscriber, broker=brokers, topic=topic_filters, start_ns=starts, stop_ns=stops),
                    max_size=3,
                )
            )
        ),
        events=tuple(sorted(draw(st.lists(events, max_size=5)), key=lambda event: event.at_ns)),
        simulation=draw(st.builds(Simulation, duration_ns=st.integers(1, 10**12), seed=st.integers(0, 2**64 - 1))),
        defaults=draw(st.builds(Defaults, routing=routings, scheduling=st.sampled_from(SCHEDULINGS))),
        security=security,
        access=tuple(draw(st.lists(rules, max_size=3))),
        limits=draw(limits),
        telemetry=draw(telemetries),
        web=draw(webs),
        gateways=tuple(
            Gateway(
                name=name,
                broker=draw(brokers),
                to=draw(
                    st.sampled_from(["mqtt://h:1", "nats://h,i:2", "kafka://k", "amqps://a", "mqtts://[::1]:8883"])
                ),
                topics=(NameRule("a/#", draw(st.sampled_from(["a/#", "x/#"])), draw(st.sampled_from(DIRECTIONS))),),
                qos=draw(st.integers(0, 1)),
                backlog_rate=draw(st.none() | st.integers(1, 10**7)),
                user=draw(st.none() | printable),
            )
            for name in draw(st.lists(names, max_size=2, unique=True))
        ),
        coordination=draw(st.none() | coordinations),
        routing=draw(routing_tiers),
        recovery=draw(recoveries),
        federation=tuple(
            draw(
                st.lists(
                    st.builds(
                        Border,
                        broker=brokers,
                        other=st.just("*") | brokers,
                        leave=st.lists(topic_filters, max_size=2).map(tuple),
                        enter=st.none() | st.lists(topic_filters, max_size=2).map(tuple),
                    ),
                    max_size=2,
                )
            )
        ),
    )


@settings(examples(60), derandomize=True)
@given(networks())
def test_a_network_that_is_written_and_read_is_the_same(network: Network) -> None:
    assert parse_network(format_network(network)) == network


@settings(examples(60), derandomize=True)
@given(networks())
def test_every_table_and_field_of_a_file_has_a_line(network: Network) -> None:
    text = format_network(network)
    index = LineIndex(text)

    def check(path: tuple[str | int, ...], value: object) -> None:
        assert path in index
        match value:
            case dict():
                for key, inner in value.items():
                    check((*path, key), inner)
            case list():
                for number, inner in enumerate(value):
                    check((*path, number), inner)

    check((), tomllib.loads(text))


def read_or_refused(content: bytes) -> None:
    try:
        parse_network(content)
    except ConfigError as refused:
        str(refused)  # also telling it must work


@settings(examples(300), derandomize=True)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    read_or_refused(content)


values = st.recursive(
    st.sampled_from(
        ["1", "-1", "nan", "0x" + "f" * 5000, "1e400", "true", '""', '"14ms"', '"a"', "1979-05-27", "07:32:00"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]")
        | st.lists(inner, max_size=2).map(
            lambda parts: "{" + ", ".join(f"k{number} = {part}" for number, part in enumerate(parts)) + "}"
        )
    ),
    max_leaves=5,
)


@settings(examples(400), derandomize=True)
@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    lines = (EXAMPLE.read_text() + SERVING).splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        key, equals, _old = lines[at].partition(" = ")
        lines[at] = f"{key} = {data.draw(values)}" if equals else f"{data.draw(st.sampled_from(lines))}"
    read_or_refused("\n".join(lines).encode())
