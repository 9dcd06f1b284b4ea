"""Reads what topics ask of paths beside their deadline: trust (`encrypted`, `through`, `avoid`), loss, resiliency."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from overlane.core.requirements import BROKER_PREFIX, DOMAIN_PREFIX, PLACES_MAX, Requirements
from overlane.core.units import MS
from overlane.network.schema import OWNERSHIPS, Broker, Topic
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import Table, show

_lease = kinds.duration(at_least_ns=MS, allowed='a duration of at least 1 ms such as "2s"')
PREFIXES = (BROKER_PREFIX, DOMAIN_PREFIX)
_ALLOWED = '"broker:NAME" or "domain:NAME"'


def place_kind() -> FieldKind[str]:
    name = kinds.name()

    def read(value: object) -> str:
        prefix = next((one for one in PREFIXES if isinstance(value, str) and value.startswith(one)), None)
        if prefix is None or not isinstance(value, str):
            raise ValueError("neither a broker nor a domain")
        name.read(value.removeprefix(prefix))
        return value

    return FieldKind(_ALLOWED, read, blank="")


def with_requirements(topic: Topic, table: Table) -> Topic:
    """The topic with what its table asks of paths."""
    lists = {field: table.many(field, place_kind()) for field in ("through", "avoid")}
    for field, places in lists.items():
        if len(places) > PLACES_MAX:
            table.refuse(field, f"at most {PLACES_MAX} of them")
    read: Topic = structs.replace(
        topic,
        encrypted=table.optional("encrypted", kinds.flag(), False),
        through=lists["through"],
        avoid=lists["avoid"],
        loss_max=table.optional("loss_max", kinds.share(), 1.0),
        resiliency_min=table.optional("resiliency_min", kinds.share(), 0.0),
        liveliness_ns=table.optional("liveliness", _lease, None),
        period_ns=table.optional("period", _lease, None),
        ownership=table.optional("ownership", kinds.choice(OWNERSHIPS), OWNERSHIPS[0]),
    )
    if read.ownership == "exclusive" and "liveliness" not in table:
        table.refuse("ownership", '"exclusive" only with liveliness, or a publisher that is gone would own the topic')
    return read


def unknown_places(topics: Iterable[Topic], brokers: Sequence[Broker]) -> Iterator[tuple[str, str, int, str]]:
    """Of topics, what names no broker and no domain of the file: filter, field, index and value. Whoever mistypes what
    is to be avoided must not find out later."""
    known = {BROKER_PREFIX + one.name for one in brokers}
    known |= {DOMAIN_PREFIX + (one.domain or one.name) for one in brokers}
    for topic in topics:
        for field in ("through", "avoid"):
            for index, place in enumerate(getattr(topic, field)):
                if place not in known:
                    yield topic.filter, field, index, show(place)


def requirements(topic: Topic) -> Requirements:
    return Requirements(
        topic.encrypted,
        tuple(sorted(topic.through)),
        tuple(sorted(topic.avoid)),
        topic.loss_max,
        topic.resiliency_min,
    )
