"""Reads a network file: TOML in, a `Network` out, or a `ConfigError` with all errors.

Brokers are read first, since everything else names them, and links before events, which name links. Paths in a file are
relative to its directory; in the `Network` they are absolute.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from overlane.core.units import NEVER
from overlane.errors import ConfigError, Fault
from overlane.network.schema import (
    DURABILITIES,
    LINK_FAILURE,
    ORDERS,
    QUEUE_BYTES,
    RELIABILITIES,
    ROUTINGS,
    SCHEDULINGS,
    TRANSPORTS,
    Defaults,
    Emulated,
    Link,
    Network,
    Publisher,
    Routing,
    Simulation,
    Subscriber,
    Topic,
)
from overlane.network.sections.brokers import read_brokers
from overlane.network.sections.coordinated import read_coordination, read_routing
from overlane.network.sections.dds import read_dds
from overlane.network.sections.events import read_events
from overlane.network.sections.gateways import read_gateways
from overlane.network.sections.items import read_items, read_placement
from overlane.network.sections.limits import read_limits
from overlane.network.sections.mediation import read_mediation, refuse_borders
from overlane.network.sections.names import read_names, refuse_advertised
from overlane.network.sections.otlp import read_otlp
from overlane.network.sections.overlay import (
    read_back,
    read_carrier,
    read_dscp,
    read_emulation,
    read_federation,
    refuse_carriers,
    transport_kind,
)
from overlane.network.sections.recovery import read_recovery
from overlane.network.sections.requirements import unknown_places, with_requirements
from overlane.network.sections.reservations import read_advertised, read_rules
from overlane.network.sections.security import read_access, read_security
from overlane.network.sections.telemetry import read_telemetry
from overlane.network.sections.web import read_web
from overlane.network.syntax import kinds
from overlane.network.syntax.lines import line_of
from overlane.network.syntax.table import NOTHING, Faults, Table, show
from overlane.quantities import MS

FILE_BYTES_MAX = 64 * 2**20
PATHS_MAX = 16
MESSAGE_BYTES_MAX = 2**20

_SYNTAX_LINE = re.compile(r"(.*) \(at line ([0-9]+), column [0-9]+\)", re.DOTALL)

_positive = kinds.duration(at_least_ns=1, allowed='a duration above 0 such as "60ms" or "1.5s"')
_queue = kinds.size(at_least=1, allowed='a number of bytes above 0 such as 65536 or "256KiB"')
_message = kinds.size(
    at_least=0, at_most=MESSAGE_BYTES_MAX, allowed='a number of bytes up to 1 MiB such as 64 or "4KiB"'
)
_duration = kinds.duration()
_share = kinds.share()


def read_network(path: str | Path, *, needs_brokers: bool = True) -> Network:
    """Read the file at `path`; ConfigError when it cannot be read or is wrong."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as refused:  # ValueError: a path with a null in it
        reason = refused.strerror if isinstance(refused, OSError) and refused.strerror else str(refused)
        raise ConfigError([Fault(str(path), 0, "", f"no way to read it ({reason})", "a readable TOML file")]) from None
    return parse_network(content, str(path), Path(path).absolute().parent, needs_brokers=needs_brokers)


def parse_network(
    content: str | bytes, file: str = "<network>", directory: Path | None = None, *, needs_brokers: bool = True
) -> Network:
    """Read a network from the text of a file, which messages call `file`. Paths in it stay as they are without a
    directory they are relative to."""
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError([Fault(file, 0, "", "a file of more than 64 MiB", "a TOML file of at most 64 MiB")])
    text = _decoded(content, file) if isinstance(content, bytes) else content
    faults = Faults(file, text)
    network = _network(Table(faults, (), _parsed(text, file)), directory, needs_brokers=needs_brokers)
    faults.raise_if_any()
    return network


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as bad:
        line = content.count(b"\n", 0, bad.start) + 1
        raise ConfigError([Fault(file, line, "", f"the byte 0x{content[bad.start]:02x}", "text in UTF-8")]) from None


def _parsed(text: str, file: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError([Fault(file, 0, "", "brackets nested too deeply", "TOML 1.0")]) from None
    except ValueError as bad:  # TOMLDecodeError, and what int() says of too many digits
        located = _SYNTAX_LINE.fullmatch(str(bad))
        reason, line = (located[1], int(located[2])) if located else (str(bad), line_of(text, len(text)))
        reason = reason.removesuffix(" (at end of document)").partition(":")[0]
        raise ConfigError([Fault(file, line, "", f"a mistake in its syntax ({reason})", "TOML 1.0")]) from None


def _network(root: Table, directory: Path | None, *, needs_brokers: bool = True) -> Network:
    brokers = tuple(read_brokers(root))
    names = tuple(broker.name for broker in brokers)
    links = tuple(_links(root, names))
    defaults = _defaults(root.table("network"))
    security = read_security(root.table("security"), brokers, directory)
    coordination = read_coordination(root, directory)
    if security.overlay_secret is None:
        refuse_carriers(root, links)
    gateways = read_gateways(root.tables("gateways"), names, directory)
    network = Network(
        brokers=brokers,
        links=links,
        topics=tuple(_topics(root, defaults.routing)),
        publishers=tuple(_publisher(table, names) for table in root.tables("publishers")),
        subscribers=tuple(_subscriber(table, names) for table in root.tables("subscribers")),
        events=read_events(root.tables("events"), brokers, links),
        simulation=_simulation(root.table("simulation")),
        defaults=defaults,
        security=security,
        access=tuple(read_access(root.tables("access"))),
        limits=read_limits(root.table("limits")),
        federation=tuple(read_federation(root.tables("federation"), brokers)),
        telemetry=read_telemetry(root.table("telemetry")),
        otlp=read_otlp(root.table("otlp")),
        web=read_web(root.table("web")),
        gateways=gateways,
        dds=read_dds(root.tables("dds"), names, [one.name for one in gateways]),
        names=read_names(root.tables("names"), brokers),
        mediation=tuple(read_mediation(root.tables("mediation"), names)),
        coordination=coordination,
        routing=read_routing(root),
        recovery=read_recovery(root, coordination, needs_coordination=needs_brokers),
        reservations=read_rules(root.table("reservations")),
        advertisements=tuple(read_advertised(root.tables("advertisements"), brokers)),
        items=tuple(read_items(root, coordination, needs_coordination=needs_brokers)),
        placement=read_placement(root),
    )
    for topic in network.topics:
        if topic.durability == "mirrored" and not network.recovery.mirrors:
            allowed = '"local", or "mirrored" where [recovery] has mirrors'
            root.faults.add(("topics", topic.filter, "durability"), '"mirrored"', allowed)
    refuse_advertised(root, network)
    refuse_borders(root, network)
    if brokers and coordination is None:
        for topic_filter, field, index, found in unknown_places(network.topics, brokers):
            path = "topics", topic_filter, field, index
            root.faults.add(path, found, "the name of a broker or a domain of this file")
    root.close()
    if not brokers and needs_brokers:
        root.faults.add(("brokers",), NOTHING, "at least one table [brokers.NAME]")
    return network


def _links(root: Table, names: Sequence[str]) -> Iterator[Link]:
    ends_kind = kinds.ends(names)
    first: dict[frozenset[str], Table] = {}
    for table in root.tables("links"):
        ends = table.required("ends", ends_kind)
        if ends != ends_kind.blank and first.setdefault(frozenset(ends), table) is not table:
            line = table.faults.line(first[frozenset(ends)].path)
            table.refuse("ends", f"one link between two brokers, and line {line} has it already")
        own = Emulated(
            latency_ns=table.required("latency", _duration),
            jitter_ns=table.optional("jitter", _duration, 0),
            loss=table.optional("loss", _share, 0.0),
            rate_bps=table.optional("rate", kinds.rate(), None),
        )
        queue_bytes = table.optional("queue", _queue, QUEUE_BYTES)
        carrier = read_carrier(table)
        yield Link(
            ends=ends,
            latency_ns=own.latency_ns,
            jitter_ns=own.jitter_ns,
            loss=own.loss,
            rate_bps=own.rate_bps,
            emulate=read_emulation(table, own),
            failure=table.optional("failure", _share, LINK_FAILURE),
            queue_bytes=queue_bytes,
            back=read_back(table, own, queue_bytes),
            transport=table.optional("transport", transport_kind(), TRANSPORTS[0]) if carrier is None else "stream",
            carrier=carrier,
            encrypted=table.optional("encrypted", kinds.flag(), False),
            dscp=read_dscp(table, is_carried=carrier is not None),
        )
        table.close()


def _topics(root: Table, routing: Routing) -> Iterator[Topic]:
    filter_kind = kinds.topic_filter()
    for name, table in root.named_tables("topics"):
        try:
            filter_kind.read(name)
        except ValueError:
            table.faults.add(table.path, show(name), filter_kind.allowed)
        topic = Topic(
            filter=name,
            deadline_ns=table.optional("deadline", _positive, NEVER),
            reliability=table.optional("reliability", kinds.choice(RELIABILITIES), "best-effort"),
            routing=table.optional("routing", kinds.choice(ROUTINGS), routing),
            paths=table.optional("paths", kinds.integer(1, PATHS_MAX, f"a whole number from 1 to {PATHS_MAX}"), 2),
            lifespan_ns=table.optional("lifespan", _positive, None),
            history=table.optional("history", kinds.history(), 0),
            order=table.optional("order", kinds.choice(ORDERS), ORDERS[0]),
            durability=table.optional("durability", kinds.choice(DURABILITIES), DURABILITIES[0]),
        )
        topic = with_requirements(topic, table)
        if topic.history == "all" and "lifespan" not in table:
            table.refuse("history", "a whole number where there is no lifespan, or it would grow without limit")
        table.close()
        yield topic


def _publisher(table: Table, names: Sequence[str]) -> Publisher:
    broker = table.required("broker", kinds.broker(names))
    topic = table.required("topic", kinds.topic_name())
    rate_hz = table.required("rate", kinds.per_second())
    size_bytes = table.optional("size", _message, 64)
    start_ns, stop_ns = _period(table)
    return Publisher(
        broker=broker, topic=topic, rate_hz=rate_hz, size_bytes=size_bytes, start_ns=start_ns, stop_ns=stop_ns
    )


def _subscriber(table: Table, names: Sequence[str]) -> Subscriber:
    broker = table.required("broker", kinds.broker(names))
    topic = table.required("topic", kinds.topic_filter())
    start_ns, stop_ns = _period(table)
    return Subscriber(broker=broker, topic=topic, start_ns=start_ns, stop_ns=stop_ns)


def _period(table: Table) -> tuple[int, int | None]:
    """The last fields of a publisher or subscriber: from when to when."""
    start_ns = table.optional("start", _duration, 0)
    stop_ns = table.optional("stop", _duration, None)
    if stop_ns is not None and stop_ns <= start_ns:
        table.refuse("stop", "a duration longer than start")
    table.close()
    return start_ns, stop_ns


def _simulation(table: Table) -> Simulation:
    seed = kinds.integer(0, 2**64 - 1, "a whole number from 0 to 2^64 - 1")
    simulation = Simulation(
        duration_ns=table.optional("duration", _positive, Simulation().duration_ns),
        seed=table.optional("seed", seed, Simulation().seed),
        settle_ns=table.optional("settle", _duration, Simulation().settle_ns),
    )
    table.close()
    return simulation


def _defaults(table: Table) -> Defaults:
    interval = kinds.duration(at_least_ns=MS, allowed='a duration of at least 1ms such as "500ms"')
    defaults = Defaults(
        routing=table.optional("routing", kinds.choice(ROUTINGS), Defaults().routing),
        scheduling=table.optional("scheduling", kinds.choice(SCHEDULINGS), Defaults().scheduling),
        ping_interval_ns=table.optional("ping_interval", interval, Defaults().ping_interval_ns),
    )
    table.close()
    return defaults
