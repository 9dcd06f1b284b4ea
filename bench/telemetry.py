"""Cost of telemetry: brokers that record compared with brokers that do not, and the cost of rows.

    python bench/telemetry.py [--rounds 9] [--seconds 1]

    one broker         messages per second, 64 bytes, QoS 0, one publisher at full rate and one subscriber that counts
    two brokers        the same over a link: messages from other brokers are recorded in most detail
    a second           the work of the loop for one second, by the number of topics with messages in it
    a thousand rows    in the writer's thread: into a journal, and from there into a file

Brokers alternate, round by round, each time in another order. Ratios are medians of those within a round, also of the
CPU time per message, which is less sensitive to other work on the machine. A second broker that does not record shows
by how much two equal brokers differ: the noise. All other times are CPU times. Writes bench/out/telemetry.json.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from _broker_measures import SMALL_BYTES, TOPIC
from _crew import of, perform
from _load import Counted, Load, SocketLoad
from _peers import Running, free_port, running
from _wire import HOST, Mqtt
from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.qos import QosTable
from overlane.core.units import SECOND
from overlane.mqtt.server import MqttServer
from overlane.network.schema import Telemetry
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.state import Settings
from overlane.telemetry.file_rotation import FileRotation
from overlane.telemetry.publisher import execute
from overlane.telemetry.recorder import Recorder
from overlane.telemetry.rows import TopicRate
from overlane.telemetry.sampler import Sampler
from overlane.telemetry.topic_rates import TopicRates

OUT = Path(__file__).parent / "out"
WARM_S = 1.5
"""Until routes are set up, too."""
ROWS = 100_000
START = 1_800_000_000 * SECOND


# Brokers that run


@dataclass(frozen=True, slots=True)
class Member:
    """A broker of a network that `tables` describes, but for the address where its clients come."""

    name: str
    tables: str

    @property
    def load(self) -> Load:
        return SocketLoad(Mqtt())

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return ""

    def command(self, port: int, directory: Path) -> list[str]:
        file = directory / "network.toml"
        file.write_text(self.tables.replace(f"[brokers.{self.name}]", f'[brokers.{self.name}]\nmqtt = "{HOST}:{port}"'))
        command = [sys.executable, "-m", "overlane", "broker", str(file), "--name", self.name]
        return [*command, "--data", str(directory / "data")]


@contextmanager
def chain(directory: Path, length: int, is_recorded: bool) -> Iterator[list[Running]]:
    names = [f"b{number}" for number in range(length)]
    lines = [f"[telemetry]\nenabled = {str(is_recorded).lower()}"]
    for name in names:
        lines.append(f'[brokers.{name}]\noverlay = "{HOST}:{free_port()}"\nadmin = "{HOST}:{free_port()}"')
    for one, other in pairwise(names):
        lines.append(f'[[links]]\nends = ["{one}", "{other}"]\nlatency = "1ms"')
    members = [Member(name, "\n".join(lines)) for name in names]
    with ExitStack() as stack:
        yield [stack.enter_context(running(member, directory / member.name)) for member in members]


@dataclass(frozen=True, slots=True)
class Stream:
    per_second: float
    cpu_ns: float
    """Of the last broker, per message that arrived."""


def stream(brokers: list[Running], seconds: float) -> Stream:
    first, last = brokers[0], brokers[-1]
    for longer in (1, 4, 16):  # on a busy machine nothing may arrive in a short time
        before_s = last.cpu_s
        roles = [last.load.count(last.port, TOPIC, SMALL_BYTES), first.load.flood(first.port, TOPIC, SMALL_BYTES)]
        (counted,) = of(Counted, perform(roles, WARM_S, seconds * longer))
        if counted.count:
            return Stream(counted.per_second, (last.cpu_s - before_s) * 1e9 / counted.count)
    raise SystemExit(f"nothing arrived within {seconds * longer:g} s")


def compare(directory: Path, length: int, rounds: int, seconds: float) -> dict[str, float]:
    """Medians, and medians of the ratios of each round: recorded to not recorded, and twice not recorded."""
    found: list[dict[str, Stream]] = []
    with ExitStack() as stack:
        kinds = {"recorded": True, "plain": False, "plain again": False}
        chains = {kind: stack.enter_context(chain(directory / kind, length, on)) for kind, on in kinds.items()}
        for number in range(rounds):
            turn = number % len(kinds)
            order = [*kinds, *kinds][turn : turn + len(kinds)]
            found.append({kind: stream(chains[kind], seconds) for kind in order})

    def ratio(kind: str, of: str) -> float:
        return float(median(getattr(one[kind], of) / getattr(one["plain"], of) for one in found))

    return {
        "per_second_recorded": median(one["recorded"].per_second for one in found),
        "per_second": median(one["plain"].per_second for one in found),
        "rate_ratio": ratio("recorded", "per_second"),
        "rate_noise": ratio("plain again", "per_second"),
        "cpu_ratio": ratio("recorded", "cpu_ns"),
        "cpu_noise": ratio("plain again", "cpu_ns"),
    }


# The parts


class _Nobody:
    """No neighbours."""

    neighbours: tuple[str, ...] = ()
    links: dict[str, object] = {}  # noqa: RUF012


def a_second(topics: int) -> dict[str, float]:
    """The loop's work: all of it, and the longest piece during which nothing else runs. In milliseconds."""
    core = OverlayBroker(BrokerConfig("b", QosTable({})), 1, (), START)
    server = MqttServer("b", Settings(), Alone(), lambda: "", (), START)
    recorder = Recorder()
    rates = TopicRates(server.state)
    sampler = Sampler(server, core, _Nobody(), rates, recorder.add)  # type: ignore[arg-type]
    names = [f"plant/{number % 50}/sensor/{number}" for number in range(topics)]
    taken_ms, longest_ms = [], []
    for _ in range(5):
        for name in names:
            stats = server.state.stats(name)
            stats.messages += 3
            stats.bytes += 200
        pieces: list[float] = []
        start = time.thread_time()
        asyncio.run(_watched(sampler, pieces))
        taken_ms.append((time.thread_time() - start) * 1e3)
        longest_ms.append(max(pieces) * 1e3)
        recorder.hand_over()
        for batch in recorder.take(0)[0]:
            for table, rows in batch.items():
                recorder.done(table, len(rows))
        recorder.hand_over()
    return {"topics": topics, "all_ms": min(taken_ms), "longest_ms": min(longest_ms)}


async def _watched(sampler: Sampler, pieces: list[float]) -> None:
    """Look on as something else in the loop that wants to run all the time."""
    sampling = asyncio.ensure_future(sampler.sample())
    last = time.thread_time()
    while not sampling.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        pieces.append(now - last)
        last = now


def a_thousand_rows(directory: Path) -> dict[str, float]:
    """In milliseconds, and bytes."""
    spool = directory / "lake" / ".open"
    spool.mkdir(parents=True)
    filing = FileRotation(str(directory / "lake"), spool, "b", 1, Telemetry(), 0.0, execute)
    filing.recover()
    rows = [
        TopicRate(
            START + n // 1000 * SECOND, SECOND, f"plant/{n % 50}/sensor/{n % 1000}", n % 7, n % 999, 0, 0, n % 7, 0
        )
        for n in range(ROWS)
    ]
    start = time.thread_time()
    for first in range(0, ROWS, 1000):
        filing.record("topic_rates", rows[first : first + 1000], 0.0)
    journalled = time.thread_time()
    journal_bytes = sum(path.stat().st_size for path in spool.iterdir())
    filing.seal_all()
    filing.publish()
    published = time.thread_time()
    lake_bytes = sum(path.stat().st_size for path in (directory / "lake").rglob("*.parquet"))
    return {
        "journal_ms": (journalled - start) * 1e6 / ROWS,
        "file_ms": (published - journalled) * 1e6 / ROWS,
        "journal_bytes": journal_bytes * 1e3 / ROWS,
        "file_bytes": lake_bytes * 1e3 / ROWS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    console = Console(width=120)
    OUT.mkdir(exist_ok=True)
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(dir=OUT, prefix="telemetry-") as text:
        directory = Path(text)
        table = Table("brokers", "msg/s recorded", "msg/s", "ratio (noise)", "cpu/msg ratio (noise)", box=None)
        for length, title in ((1, "one broker"), (2, "two brokers")):
            found = compare(directory / str(length), length, options.rounds, options.seconds)
            results[title] = found
            shown = [f"{found[key]:,.0f}" for key in ("per_second_recorded", "per_second")]
            ratios = [f"{found[f'{of}_ratio']:.3f} ({found[f'{of}_noise']:.3f})" for of in ("rate", "cpu")]
            table.add_row(title, *shown, *ratios)
        console.print(table)
        seconds = results["a second"] = [a_second(topics) for topics in (0, 100, 1_000, 10_000)]
        for one in seconds:
            console.print(
                f"a second with {one['topics']:,.0f} topics: {one['all_ms']:.2f} ms of the loop, at most"
                f" {one['longest_ms']:.2f} ms at once",
                highlight=False,
            )
        rows = results["a thousand rows"] = a_thousand_rows(directory)
        console.print(
            f"a thousand rows: {rows['journal_ms']:.2f} ms into the journal, {rows['file_ms']:.2f} ms into the file;"
            f" {rows['journal_bytes']:,.0f} bytes there, {rows['file_bytes']:,.0f} bytes here",
            highlight=False,
        )
    (OUT / "telemetry.json").write_text(json.dumps(results, indent=1))
    console.print("wrote bench/out/telemetry.json")


if __name__ == "__main__":
    main()
