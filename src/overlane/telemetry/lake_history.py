"""The history in a lake: what brokers recorded of themselves, summed up in steps of equal length.

Read by Arrow in batches, each of which is summed up at once, so that days of many brokers fit into memory. Topics are
those of `row_of`, such as filters of a network file. Ages are counted in classes of 5 per cent, since percentiles
cannot be summed up.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from overlane.core.units import SECOND, Nanos
from overlane.errors import Unavailable
from overlane.telemetry.lake import opened
from overlane.telemetry.rows import EventKind, QueueKind
from overlane.telemetry.schema import SCHEMAS

AGE_CLASS = math.log(1.05)
STATES = ("up", "suspect", "down", "failed")
"""The worst of a step counts."""
EVENTS = (
    *(EventKind.BROKER_STARTED, EventKind.BROKER_STOPPED, EventKind.LINK, EventKind.ROUTE),
    *(EventKind.DEADLINE_UNMEETABLE, EventKind.REQUIREMENT, EventKind.PATH),
)


@dataclass(frozen=True, slots=True)
class LinkStep:
    """One direction of a link in one step."""

    state: str
    latency_ns: float | None
    jitter_ns: float | None
    loss: float | None
    queue_bytes: int
    queue_bytes_max: int
    bytes_out: int


@dataclass(slots=True)
class TopicStep:
    published: int = 0
    delivered: int = 0
    in_time: int = 0
    ages: dict[int, int] = field(default_factory=dict)
    """Messages by class of their age."""


@dataclass(slots=True)
class BrokerStep:
    """A broker that has recorded something in a step."""

    messages_in: int = 0
    messages_out: int = 0
    queue_messages: int = 0


@dataclass(slots=True)
class LakeHistory:
    """All by number of the step; events in the order of time."""

    links: dict[int, dict[tuple[str, str], LinkStep]] = field(default_factory=lambda: defaultdict(dict))
    brokers: dict[int, dict[str, BrokerStep]] = field(default_factory=lambda: defaultdict(dict))
    topics: dict[int, dict[str, TopicStep]] = field(default_factory=lambda: defaultdict(dict))
    events: list[dict[str, Any]] = field(default_factory=list)


def age_ns(age_class: int) -> float:
    """The upper end of a class."""
    return math.exp(age_class * AGE_CLASS)


def last_row_ns(lake: str) -> Nanos:
    """When something was recorded last. Unavailable if nothing was, or the lake cannot be read."""
    newest = 0
    files = sorted(_files(lake, "queues"), key=lambda path: path.rsplit("/", 2)[1], reverse=True)
    day = files[0].rsplit("/", 2)[1] if files else ""
    for batch in _batches(lake, [one for one in files if f"/{day}/" in one], "queues", ["at_ns"], None):
        newest = max(newest, pc.max(batch.column("at_ns")).as_py() or 0)
    if not newest:
        raise Unavailable(f"telemetry in {lake}", "no broker has recorded anything there")
    return newest


def read_history(
    lake: str, from_ns: Nanos, until_ns: Nanos, step_ns: Nanos, row_of: Callable[[str], str]
) -> LakeHistory:
    """What was recorded in a period; Unavailable if the lake cannot be read."""
    found, period = LakeHistory(), _Period(lake, from_ns, until_ns, step_ns)
    _add_queues(found, period)
    _add_rates(found, period, row_of)
    _add_deliveries(found, period, row_of)
    _add_links(found, period)
    for batch in period.batches("events", SCHEMAS["events"].names):
        found.events += [row for row in batch.to_pylist() if row["kind"] in EVENTS]
    found.events.sort(key=lambda row: row["at_ns"])
    return found


# Tables


@dataclass(frozen=True, slots=True)
class _Period:
    lake: str
    from_ns: Nanos
    until_ns: Nanos
    step_ns: Nanos

    def batches(self, table: str, columns: list[str]) -> Iterator[Any]:
        first, last = (
            f"date={datetime.fromtimestamp(at / SECOND, UTC):%Y-%m-%d}" for at in (self.from_ns, self.until_ns)
        )
        files = [one for one in _files(self.lake, table) if first <= one.rsplit("/", 2)[1] <= last]
        at = ds.field("at_ns")
        yield from _batches(self.lake, files, table, columns, (at >= self.from_ns) & (at < self.until_ns))

    def summed(self, table: str, keys: list[str], columns: dict[str, str], of: Callable[[Any], Any]) -> Any:
        """Rows of a table by step and `keys`; `columns` by how they are summed up. `of` prepares a batch."""
        parts = []
        for batch in self.batches(table, SCHEMAS[table].names):
            step = pc.divide(pc.subtract(batch.column("at_ns"), self.from_ns), self.step_ns)
            rows = pa.table(batch).append_column("step", step)
            parts.append(_grouped(of(rows), keys, columns))
        if not parts:
            return []
        return _grouped(pa.concat_tables(parts), keys, columns).to_pylist()


def _grouped(rows: Any, keys: list[str], columns: dict[str, str]) -> Any:
    names = ["step", *keys]
    made = rows.group_by(names).aggregate(list(columns.items()))
    summed = {f"{name}_{how}": name for name, how in columns.items()}
    return made.rename_columns([summed.get(name, name) for name in made.column_names])


def _add_queues(found: LakeHistory, period: _Period) -> None:
    """There are rows every second while a broker runs."""

    def of_clients(rows: Any) -> Any:
        messages = pc.fill_null(rows.column("messages"), 0)
        counted = pc.if_else(pc.equal(rows.column("queue"), QueueKind.CLIENTS), messages, 0)
        return rows.set_column(rows.column_names.index("messages"), "messages", counted)

    for row in period.summed("queues", ["broker"], {"messages": "max"}, of_clients):
        found.brokers[row["step"]][row["broker"]] = BrokerStep(queue_messages=row["messages"])


def _add_rates(found: LakeHistory, period: _Period, row_of: Callable[[str], str]) -> None:
    columns = {"messages_in": "sum", "messages_out": "sum"}
    for row in period.summed("topic_rates", ["broker", "topic"], columns, lambda rows: _by_row(rows, row_of)):
        broker = found.brokers[row["step"]].setdefault(row["broker"], BrokerStep())
        broker.messages_in += row["messages_in"]
        broker.messages_out += row["messages_out"]
        if row["messages_in"]:
            found.topics[row["step"]].setdefault(row["topic"], TopicStep()).published += row["messages_in"]


def _add_deliveries(found: LakeHistory, period: _Period, row_of: Callable[[str], str]) -> None:
    def classed(rows: Any) -> Any:
        ages = pc.cast(pc.max_element_wise(rows.column("age_ns"), 1), pa.float64())
        classes = pc.cast(pc.ceil(pc.divide(pc.ln(ages), AGE_CLASS)), pa.int64())
        in_time = pc.if_else(pc.fill_null(rows.column("in_time"), True), rows.column("weight"), 0)
        return _by_row(rows, row_of).append_column("class", classes).append_column("timely", in_time)

    columns = {"weight": "sum", "timely": "sum"}
    for row in period.summed("deliveries", ["topic", "class"], columns, classed):
        step = found.topics[row["step"]].setdefault(row["topic"], TopicStep())
        step.delivered += row["weight"]
        step.in_time += row["timely"]
        step.ages[row["class"]] = step.ages.get(row["class"], 0) + row["weight"]


def _add_links(found: LakeHistory, period: _Period) -> None:
    def ranked(rows: Any) -> Any:
        rank = pc.index_in(rows.column("state"), value_set=pa.array(STATES))
        known = pc.cast(pc.is_valid(rows.column("latency_ns")), pa.int64())
        lost = pc.cast(pc.is_valid(rows.column("loss")), pa.int64())
        return rows.append_column("rank", rank).append_column("known", known).append_column("lossy", lost)

    columns = dict.fromkeys(("latency_ns", "jitter_ns", "loss", "known", "lossy", "bytes_out"), "sum")
    columns |= dict.fromkeys(("rank", "queue_bytes", "queue_bytes_max"), "max")
    for row in period.summed("links", ["broker", "peer"], columns, ranked):
        known, lossy = row["known"], row["lossy"]
        found.links[row["step"]][row["broker"], row["peer"]] = LinkStep(
            STATES[row["rank"] or 0],
            row["latency_ns"] / known if known else None,
            (row["jitter_ns"] or 0) / known if known else None,
            row["loss"] / lossy if lossy else None,
            row["queue_bytes"],
            row["queue_bytes_max"],
            row["bytes_out"],
        )


def _by_row(rows: Any, row_of: Callable[[str], str]) -> Any:
    """With the row of each topic instead of the topic."""
    encoded = rows.column("topic").combine_chunks().dictionary_encode()
    names = pa.array([row_of(topic) for topic in encoded.dictionary.to_pylist()], pa.string())
    return rows.set_column(rows.column_names.index("topic"), "topic", names.take(encoded.indices))


# Files


def _files(lake: str, table: str) -> list[str]:
    try:
        system, root = opened(lake)
        found = system.get_file_info(fs.FileSelector(f"{root}/{table}", recursive=True, allow_not_found=True))
    except (pa.ArrowException, OSError, ValueError) as wrong:
        raise Unavailable(f"telemetry in {lake}", str(wrong)) from None
    names = (info.path for info in found if info.type == fs.FileType.File)
    return [name for name in names if name.endswith(".parquet") and not name.rpartition("/")[2].startswith(".")]


def _batches(lake: str, files: Iterable[str], table: str, columns: list[str], wanted: Any) -> Iterator[Any]:
    """One file after the other. One that is removed meanwhile is left out: brokers remove their oldest."""
    system, _ = opened(lake)
    for file in sorted(files):
        try:
            made = ds.dataset([file], schema=SCHEMAS[table], format="parquet", filesystem=system)
            yield from (batch for batch in made.to_batches(columns=columns, filter=wanted) if batch.num_rows)
        except FileNotFoundError:
            continue
        except (pa.ArrowException, OSError) as wrong:
            raise Unavailable(f"telemetry in {lake}", str(wrong)) from None
