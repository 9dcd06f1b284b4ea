"""A plan: values computed from the history of an overlay, for its brokers, links and topics.

    {"version": 7, "made_ns": 1790000000000000000, "source": "lake of 7 days",
     "brokers": {"denver": {"failure": 0.004}},
     "links": [{"ends": ["denver", "seattle"], "failure": 0.03}],
     "together": [{"brokers": ["denver", "boise"], "share": 0.6}],
     "topics": {"alarms/1": {"messages_per_second": 12.5, "bytes_per_second": 800.0}},
     "domains": {"west": {
        "items": [{"name": "tolls", "mean": 120.0}], "covariance": [[400.0]],
        "brokers": [{"name": "west-1", "capacity": 500.0}, {"name": "west-2", "capacity": 500.0}],
        "primary": {"tolls": "west-1"}, "mirror": {"tolls": "west-2"},
        "states": [{"failed": ["west-1"], "primary": {"tolls": "west-2"}, "mirror": {}}]}}}

`failure` is the share of time that a broker or link is down; it overrides the value of the network file. `together` has
the share of failures of two brokers that begin at the same time, for copies of brokers. The rates are those of peak
periods. Versions grow: a broker rejects a plan that is not newer than all it has received, or that was
made from older history.

`load` has the rate of all topics together that is expected in each hour from `start_s` on, for the number of routing
brokers: {"start_s": 1790000400, "rates": [812.5, 1430.0]}.

`domains` has allocation, mirrors and case base for items of the network file, in the words of `overlane plan casebase`.
"""

import math
from itertools import groupby

import msgspec

from overlane.core.topics import BadTopic, check_topic
from overlane.errors import OverlaneError
from overlane.network.syntax.kinds import name as name_kind

PLAN_BYTES_MAX = 16 << 20
SOURCE_MAX = 200
LOAD_HOURS_MAX = 31 * 24


class BadPlan(OverlaneError, ValueError):
    """Something in a plan cannot be: which field, what was found, what is allowed."""

    error_code = "OVL-107"

    def __init__(self, field: str, found: str, allowed: str) -> None:
        super().__init__(f"{field}: found {found}, allowed is {allowed}" if found else f"{field}: {allowed}")


class BrokerForecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failure: float


class LinkForecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ends: tuple[str, str]
    failure: float


class PairForecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    brokers: tuple[str, str]
    share: float


class TopicForecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    messages_per_second: float
    bytes_per_second: float


class ItemForecast(msgspec.Struct, frozen=True):
    name: str
    mean: float


class CapacityForecast(msgspec.Struct, frozen=True):
    name: str
    capacity: float


class StateForecast(msgspec.Struct, frozen=True):
    """Where items are while these brokers are missing; those that are not named stay where they are normally."""

    failed: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    primary: dict[str, str] = {}
    mirror: dict[str, str] = {}
    status: str = "kept"
    risk: dict[str, float] = {}


class DomainForecast(msgspec.Struct, frozen=True):
    """Allocation, mirrors and case base of one domain."""

    items: tuple[ItemForecast, ...]
    covariance: tuple[tuple[float, ...], ...]
    brokers: tuple[CapacityForecast, ...]
    primary: dict[str, str]
    mirror: dict[str, str]
    states: tuple[StateForecast, ...] = ()
    risk_max: float = 0.02


class LoadForecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages per second of all topics together, by the hour."""

    start_s: int
    rates: tuple[float, ...]


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    made_ns: int
    """When the history ended that it was made from, since 1970."""
    version: int = 0
    """0: it has not been given to brokers yet."""
    source: str = ""
    brokers: dict[str, BrokerForecast] = {}
    links: tuple[LinkForecast, ...] = ()
    topics: dict[str, TopicForecast] = {}
    domains: dict[str, DomainForecast] = {}
    together: tuple[PairForecast, ...] = ()
    load: LoadForecast | None = None

    def failure_of(self, broker: str) -> float | None:
        known = self.brokers.get(broker)
        return None if known is None else known.failure

    def failures_around(self, broker: str) -> dict[str, float]:
        """Of the links of a broker, by its neighbours."""
        return {end: link.failure for link in self.links if broker in link.ends for end in link.ends if end != broker}


def read_plan(content: bytes) -> Plan:
    """A plan from its JSON; BadPlan."""
    if len(content) > PLAN_BYTES_MAX:
        raise BadPlan("plan", f"{len(content)} bytes", f"at most {PLAN_BYTES_MAX}")
    try:
        plan = msgspec.json.decode(content, type=Plan)
    except msgspec.DecodeError as error:  # a ValidationError is one too, and names the field
        raise BadPlan("plan", "", str(error)) from None
    check_plan(plan)
    return plan


def check_plan(plan: Plan) -> None:
    """BadPlan for errors that the types do not exclude."""
    if plan.version < 0 or plan.made_ns <= 0:
        raise BadPlan("version, made_ns", f"{plan.version}, {plan.made_ns}", "a version and a time since 1970")
    if len(plan.source) > SOURCE_MAX:
        raise BadPlan("source", f"{len(plan.source)} characters", f"at most {SOURCE_MAX}")
    for broker, outlook in plan.brokers.items():
        _check_name(f"brokers.{broker}", broker)
        _check_share(f"brokers.{broker}.failure", outlook.failure)
    for number, link in enumerate(plan.links):
        for end in link.ends:
            _check_name(f"links[{number}].ends", end)
        if link.ends[0] == link.ends[1]:
            raise BadPlan(f"links[{number}].ends", f'"{link.ends[0]}" twice', "two brokers")
        _check_share(f"links[{number}].failure", link.failure)
    for ends, same in groupby(sorted(tuple(sorted(link.ends)) for link in plan.links)):
        if len(list(same)) > 1:
            raise BadPlan("links", f"{ends[0]}-{ends[1]} twice", "every link once")
    for number, pair in enumerate(plan.together):
        _check_pair(f"together[{number}]", pair)
    if plan.load is not None:
        _check_load(plan.load)
    for domain, forecast in plan.domains.items():
        _check_domain(f"domains.{domain}", forecast)
    for topic, rates in plan.topics.items():
        _check_topic(topic, rates)


def _check_topic(topic: str, rates: TopicForecast) -> None:
    try:
        check_topic(topic)
    except BadTopic as bad:
        raise BadPlan("topics", repr(topic[:80]), str(bad)) from None
    for rate in (rates.messages_per_second, rates.bytes_per_second):
        if not (math.isfinite(rate) and rate >= 0):
            raise BadPlan(f"topics.{topic}", f"{rate}", "rates that are not negative")


def _check_pair(field: str, pair: PairForecast) -> None:
    for broker in pair.brokers:
        _check_name(f"{field}.brokers", broker)
    if not 0 <= pair.share <= 1:
        raise BadPlan(f"{field}.share", f"{pair.share}", "a share from 0 to 1")


def _check_load(load: LoadForecast) -> None:
    if load.start_s <= 0 or len(load.rates) > LOAD_HOURS_MAX:
        raise BadPlan("load", f"{len(load.rates)} hours from {load.start_s}", f"at most {LOAD_HOURS_MAX} hours")
    if not all(math.isfinite(rate) and rate >= 0 for rate in load.rates):
        raise BadPlan("load.rates", "a rate below 0, or none", "rates that are not negative")


def _check_domain(field: str, forecast: DomainForecast) -> None:
    """Names only: agents check the rest before they follow it."""
    items, brokers = {one.name for one in forecast.items}, {one.name for one in forecast.brokers}
    if len(items) != len(forecast.items) or len(forecast.covariance) != len(items):
        raise BadPlan(f"{field}.covariance", f"{len(forecast.covariance)} rows", f"{len(items)}, one for each item")
    if forecast.primary.keys() != items:
        raise BadPlan(f"{field}.primary", f"{len(forecast.primary)} items", "a broker for every item")
    for state in (StateForecast((), (), forecast.primary, forecast.mirror), *forecast.states):
        named = {*state.primary.values(), *state.mirror.values(), *state.failed, *state.off}
        if not named <= brokers or not {*state.primary, *state.mirror} <= items:
            strangers = sorted(named - brokers | ({*state.primary, *state.mirror} - items))
            raise BadPlan(field, ", ".join(strangers)[:80], "brokers and items of this domain")


def _check_name(field: str, found: str) -> None:
    try:
        name_kind().read(found)
    except ValueError:
        raise BadPlan(field, repr(found[:80]), "the name of a broker") from None


def _check_share(field: str, found: float) -> None:
    if not 0 <= found < 1:
        raise BadPlan(field, f"{found}", "a share from 0 to less than 1")
