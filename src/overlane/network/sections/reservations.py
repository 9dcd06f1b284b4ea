"""Reads [reservations] and [[advertisements]]: what may be reserved, and what publishers of brokers are to publish."""

from collections.abc import Iterable, Iterator, Sequence

from overlane.core.bundles import ANY, groups_of
from overlane.network.schema import EXCESSES, Advertised, Broker, Network, ReservationRules
from overlane.network.syntax import kinds
from overlane.network.syntax.table import Table
from overlane.planning.reserve import Profile
from overlane.pubsub.reservations.advertisement import Advertisement, checked
from overlane.pubsub.reservations.request import BadReservation
from overlane.pubsub.state import ReservationSettings
from overlane.quantities import MS, SECOND

_size = kinds.size(at_least=1, at_most=2**20, allowed='a number of bytes from 1 to 1 MiB such as 1000 or "4KiB"')
_answer = kinds.duration(at_least_ns=10 * MS, at_most_ns=60 * SECOND, allowed='a duration from "10ms" to "60s"')
_period = kinds.duration(at_least_ns=1, allowed='a duration above 0 such as "10ms"')


def read_rules(table: Table) -> ReservationRules:
    default = ReservationRules()
    rules = ReservationRules(
        share=table.optional("share", kinds.share(), default.share),
        answer_ns=table.optional("answer", _answer, default.answer_ns),
    )
    table.close()
    return rules


def read_advertised(tables: Iterable[Table], brokers: Sequence[Broker]) -> Iterator[Advertised]:
    names = tuple(broker.name for broker in brokers)
    roles = {broker.name: broker.role for broker in brokers}
    for table in tables:
        name = table.required("broker", kinds.broker(names))
        if roles.get(name) in ("routing", "backup"):
            table.refuse("broker", "an edge or a plain broker, where publishers are")
        one = Advertised(
            broker=name,
            filter=table.required("filter", kinds.topic_filter()),
            message_bytes=table.optional("size", _size, None),
            size_min_bytes=table.optional("size_min", _size, None),
            size_max_bytes=table.optional("size_max", _size, None),
            rate_hz=table.optional("rate", kinds.per_second(), None),
            rate_max_hz=table.optional("rate_max", kinds.per_second(), None),
            period_ns=table.optional("period", _period, None),
            excess=table.optional("excess", kinds.choice(EXCESSES), EXCESSES[0]),
        )
        table.close()
        if roles.get(name) == "edge" and groups_of(one.filter) == ANY:
            table.refuse("filter", "a filter of an edge without a wildcard in its first two levels")
            continue
        try:
            advertisement(one)
        except BadReservation as bad:
            table.refuse("filter", f"an advertisement that makes sense ({bad})")
            continue
        yield one


def advertisement(one: Advertised) -> Advertisement:
    """BadReservation."""
    profile = Profile(
        size=one.message_bytes,
        size_min=one.size_min_bytes,
        size_max=one.size_max_bytes,
        rate_avg=one.rate_hz,
        rate_max=one.rate_max_hz,
        period_s=None if one.period_ns is None else one.period_ns / SECOND,
    )
    return checked(Advertisement(one.filter, profile, one.excess))


def reservation_settings(network: Network, broker: str) -> ReservationSettings:
    """Those of one broker."""
    advertised = tuple(advertisement(one) for one in network.advertisements if one.broker == broker)
    return ReservationSettings(advertised, network.reservations.answer_ns, network.reservations.share)
