"""Writes a network as a file, such that reading it gives the same network again.

Fields with their default values are omitted. Topics state their routing only if it differs from that of the network.
"""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import assert_never

import msgspec

from overlane.network.schema import (
    Advertised,
    Back,
    Border,
    Broker,
    Coordination,
    CopiesOf,
    Crash,
    Cut,
    DdsGateway,
    Defaults,
    DomainName,
    Emulated,
    Event,
    Gateway,
    Heal,
    Item,
    Join,
    Leave,
    Link,
    Lossy,
    Network,
    Otlp,
    Partition,
    Placement,
    Plug,
    Publisher,
    Recovery,
    ReservationRules,
    Restart,
    RoutingTier,
    Scoring,
    Security,
    Simulation,
    Slow,
    Subscriber,
    Telemetry,
    Topic,
    Unplug,
    Uplink,
    Web,
)
from overlane.network.schema.logins import LoginHook, Tokens
from overlane.network.sections.limits import format_limits
from overlane.network.sections.mediation import format_rule
from overlane.pubsub.access import Rule
from overlane.quantities import format_duration, format_rate, format_size

# How the fields of the schema are called in the file, and how their values are written, where either differs.
_DURATIONS = {
    "latency_ns": "latency",
    "jitter_ns": "jitter",
    "clock_offset_ns": "clock_offset",
    "deadline_ns": "deadline",
    "lifespan_ns": "lifespan",
    "start_ns": "start",
    "stop_ns": "stop",
    "duration_ns": "duration",
    "settle_ns": "settle",
    "ping_interval_ns": "ping_interval",
    "file_age_ns": "file_age",
    "silence_ns": "silence",
    "battery_needed_ns": "battery_needed",
    "grow_after_ns": "grow_after",
    "shrink_after_ns": "shrink_after",
    "answer_ns": "answer",
    "period_ns": "period",
    "off_after_ns": "off_after",
    "leeway_ns": "leeway",
    "timeout_ns": "timeout",
    "remember_ns": "remember",
}
_SIZES = {
    "queue_bytes": "queue",
    "file_bytes": "file",
    "disk_bytes": "disk",
    "memory_needed_bytes": "memory_needed",
}
_RENAMED = {
    "rate_hz": "rate",
    "rate_max_hz": "rate_max",
    "size_bytes": "size",
    "message_bytes": "size",
    "size_min_bytes": "size_min",
    "size_max_bytes": "size_max",
}


def format_network(network: Network) -> str:
    """The text of a network file."""
    tables = [
        *_optional_table("simulation", network.simulation, Simulation()),
        *_optional_table("network", network.defaults, Defaults()),
        *_security(network.security),
        *("\n".join(["[limits]", *lines]) for lines in (format_limits(network.limits),) if lines),
        *_optional_table("telemetry", network.telemetry, Telemetry()),
        *_optional_table("otlp", network.otlp, Otlp()),
        *_optional_table("web", network.web, Web()),
        *(_table("[coordination]", one, {"zookeeper": None}) for one in (network.coordination,) if one is not None),
        *_optional_table("routing", network.routing, RoutingTier()),
        *_recovery(network.recovery),
        *_optional_table("reservations", network.reservations, ReservationRules()),
        *_optional_table("placement", network.placement, Placement()),
        *(_table(f"[items.{_key(item.name)}]", item, {"name": item.name}) for item in network.items),
        *("\n".join(_rule(rule)) for rule in network.access),
        *("\n".join(_border(border)) for border in network.federation),
        *("\n".join(format_rule(rule)) for rule in network.mediation),
        *(_table("[[dds]]", gateway) for gateway in network.dds),
        *(_table("[[names]]", one) for one in network.names),
        *(_table(f"[brokers.{_key(broker.name)}]", broker, {"name": broker.name}) for broker in network.brokers),
        *("\n".join(_link(link)) for link in network.links),
        *("\n".join(_gateway(one)) for one in network.gateways),
        *(_table(f"[topics.{_key(topic.filter)}]", topic, _topic_defaults(topic, network)) for topic in network.topics),
        *(_table("[[publishers]]", publisher) for publisher in network.publishers),
        *(_table("[[subscribers]]", subscriber) for subscriber in network.subscribers),
        *(_table("[[advertisements]]", one) for one in network.advertisements),
        *("\n".join(["[[events]]", *_event(event)]) for event in network.events),
    ]
    return "\n\n".join(tables) + "\n"


Fields = (
    Broker
    | Uplink
    | Link
    | Topic
    | Publisher
    | Subscriber
    | Simulation
    | Defaults
    | Security
    | Telemetry
    | Otlp
    | Web
    | Gateway
    | Coordination
    | CopiesOf
    | RoutingTier
    | Recovery
    | Scoring
    | DdsGateway
    | DomainName
    | ReservationRules
    | Advertised
    | Item
    | Placement
    | Tokens
    | LoginHook
)


def _table(header: str, fields: Fields, defaults: Mapping[str, object] = MappingProxyType({})) -> str:
    """The header and every field that has another value than its default, the schema's or the one given here."""
    lines = [header]
    for info in msgspec.structs.fields(fields):
        value = getattr(fields, info.name)
        if info.name == "listeners":
            lines += [_field(name, at) for name, at in value.items()]
        elif value != defaults.get(info.name, info.default):
            lines.append(_field(info.name, value))
    return "\n".join(lines)


def _optional_table(name: str, fields: Fields, default: Fields) -> Iterator[str]:
    if fields != default:
        yield _table(f"[{name}]", fields)


def _security(security: Security) -> Iterator[str]:
    if security != Security():
        yield _table("[security]", security, {"jwt": security.jwt, "hook": security.hook})
    if security.jwt is not None:
        yield _table("[security.jwt]", security.jwt)
    if security.hook is not None:
        yield _table("[security.hook]", security.hook)


def _recovery(recovery: Recovery) -> Iterator[str]:
    if recovery != Recovery():
        yield _table("[recovery]", recovery, {"scoring": recovery.scoring, "brokers": recovery.brokers})
    yield from _optional_table("recovery.scoring", recovery.scoring, Scoring())
    for one in recovery.brokers:
        yield _table(f"[recovery.brokers.{_key(one.name)}]", one, {"name": one.name})


def _topic_defaults(topic: Topic, network: Network) -> dict[str, object]:
    return {"filter": topic.filter, "routing": network.defaults.routing}


def _rule(rule: Rule) -> Iterator[str]:
    yield "[[access]]"
    yield f"user = {_string(rule.user)}"
    yield f"publish = {_value(rule.publish)}"
    yield f"subscribe = {_value(rule.subscribe)}"
    for field in ("deny_publish", "deny_subscribe"):
        if denied := getattr(rule, field):
            yield f"{field} = {_value(denied)}"


def _border(border: Border) -> Iterator[str]:
    yield "[[federation]]"
    yield f"broker = {_string(border.broker)}"
    yield f"with = {_string(border.other)}"
    for name, filters in (("leave", border.leave), ("enter", border.enter)):
        if filters is not None:
            yield f"{name} = {_value(filters)}"


def _link(link: Link) -> Iterator[str]:
    if link.carrier is None:
        yield _table("[[links]]", link)
    else:
        yield _table("[[links]]", link, {"carrier": link.carrier, "transport": link.transport})
        yield f"transport = {_string(link.carrier)}"


def _gateway(gateway: Gateway) -> Iterator[str]:
    yield _table("[[gateways]]", gateway, {"topics": gateway.topics, "backlog_rate": None})
    if gateway.backlog_rate is None:
        yield 'backlog_rate = "none"'
    for rule in gateway.topics:
        yield "[[gateways.topics]]"
        yield from (_field(name, value) for name, value in rule._asdict().items())


def _emulated(emulated: Emulated) -> str:
    shown = [
        _field("latency_ns", emulated.latency_ns),
        _field("jitter_ns", emulated.jitter_ns),
        _field("loss", emulated.loss),
    ]
    if emulated.rate_bps is not None:
        shown.append(_field("rate_bps", emulated.rate_bps))
    return f"emulate = {{ {', '.join(shown)} }}"


def _back(back: Back) -> str:
    """All of it: what is left out would be as the link is there."""
    shown = [_field(info.name, getattr(back, info.name)) for info in msgspec.structs.fields(back)]
    return f"back = {{ {', '.join(shown)} }}"


def _uplinks(uplinks: tuple[Uplink, ...]) -> str:
    shown = []
    for uplink in uplinks:
        _, *fields = _table("", uplink, {"name": uplink.name}).split("\n")
        shown.append(f"{_key(uplink.name)} = {{ {', '.join(fields)} }}")
    return f"uplinks = {{ {', '.join(shown)} }}"


def _event(event: Event) -> Iterator[str]:
    yield f"at = {_string(format_duration(event.at_ns))}"
    match event:
        case Slow(_, ends, latency_ns):
            yield f"slow = {_value(ends)}"
            yield _field("latency_ns", latency_ns)
        case Lossy(_, ends, loss):
            yield f"loss = {_value(ends)}"
            yield f"rate = {loss!r}"
        case Cut(_, ends):
            yield f"cut = {_value(ends)}"
        case Partition(_, brokers):
            yield f"partition = {_value(brokers)}"
        case Heal(_, None):
            yield 'heal = "all"'
        case Heal(_, healed):
            yield f"heal = {_value(healed)}"
        case Crash(_, broker):
            yield f"crash = {_string(broker)}"
        case Restart(_, broker):
            yield f"restart = {_string(broker)}"
        case Leave(_, broker):
            yield f"leave = {_string(broker)}"
        case Join(_, broker):
            yield f"join = {_string(broker)}"
        case Unplug(_, broker, uplink):
            yield f"unplug = {_value((broker, uplink))}"
        case Plug(_, broker, uplink):
            yield f"plug = {_value((broker, uplink))}"
        case _:
            assert_never(event)


def _field(name: str, value: object) -> str:
    if name in _DURATIONS and isinstance(value, int):
        return f"{_DURATIONS[name]} = {_string(format_duration(value))}"
    if isinstance(value, Emulated):
        return _emulated(value)
    if isinstance(value, Back):
        return _back(value)
    if name == "uplinks" and isinstance(value, tuple):
        return _uplinks(value)
    if name == "rate_bps" and isinstance(value, int | None):
        return f"rate = {_string('none' if value is None else format_rate(value))}"
    if name == "bandwidth_needed_bps" and isinstance(value, int):
        return f"bandwidth_needed = {_string(format_rate(value))}"
    if name in _SIZES and isinstance(value, int):
        return f"{_SIZES[name]} = {_string(format_size(value))}"
    return f"{_RENAMED.get(name, name)} = {_value(value)}"


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case tuple():
            return f"[{', '.join(_value(element) for element in value)}]"
        case _:
            return _string(str(value))


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "_").isidentifier()
    return name if bare else _string(name)


def _string(text: str) -> str:
    """A basic string of TOML: as JSON's, except that a delete must be escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
