"""Health alerts: brokers that have fallen silent, clocks that differ, and links and brokers that are often down.

Silence is seen in the lake: a broker closes its files after minutes, so its newest file must not be older than that.
Clocks and failures are those of the last run. An alert is published when its reason appears, and once more, with
`"is_over": true`, when it is gone. What was published is kept in a file, so that a restart repeats nothing.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from overlane.pipeline.analysis.reliability import OFTEN_DOWN
from overlane.pipeline.lake_listing import LakeFile
from overlane.pipeline.output_directory import Run
from overlane.pipeline.streaming.sink import publish_texts
from overlane.pipeline.streaming.stream_options import read_options

SKEW_S = 2
PATIENCE_S = "5"
"""For which a broker may be unreachable; the next minute tries again."""
SILENT_S = 900.0
"""Three times as long as a broker keeps a file open by default."""

Alert = dict[str, Any]
Publish = Callable[[str, int, list[Alert]], None]
"""Publishes the alerts of a batch of a writer, once."""


def silent_brokers(files: Iterable[LakeFile], now_s: float, silent_s: float = SILENT_S) -> list[Alert]:
    newest: dict[str, float] = {}
    for file in files:
        broker = file.name.partition("/")[2].rsplit("-", 2)[0]
        newest[broker] = max(newest.get(broker, 0.0), file.modified_s)
    return [
        {"kind": "silent", "broker": broker, "since_s": int(at_s)}
        for broker, at_s in sorted(newest.items())
        if now_s - at_s > silent_s
    ]


def wrong_clocks(run: Run | None, skew_s: int = SKEW_S) -> list[Alert]:
    """Clocks by the last hour in which links tell something of them."""
    latest: dict[str, tuple[int, int]] = {}
    for row in _rows(run, "clock_offsets"):
        latest[row["broker"]] = max(latest.get(row["broker"], (0, 0)), (row["hour_s"], row["offset_s"]))
    return [
        {"kind": "clock", "broker": broker, "offset_s": offset_s}
        for broker, (_, offset_s) in sorted(latest.items())
        if abs(offset_s) >= skew_s
    ]


def often_down(run: Run | None) -> list[Alert]:
    """What brokers will avoid by the plan of this run."""
    found = []
    for row in _rows(run, "reliability"):
        if (row["failure_planned"] or 0.0) >= OFTEN_DOWN:
            ends = [row["broker"]] if row["peer"] is None else [row["broker"], row["peer"]]
            found.append({"kind": "often down", "what": "-".join(ends), "failure": round(row["failure_planned"], 4)})
    return sorted(found, key=lambda alert: str(alert["what"]))


def publisher(broker_options: Mapping[str, str], topic: str) -> Publish:
    """Publishes alerts on a topic by the first of these brokers."""
    options = read_options({**broker_options, "patience": PATIENCE_S})

    def publish(writer: str, batch: int, alerts: list[Alert]) -> None:
        publish_texts([msgspec.json.encode(alert).decode() for alert in alerts], topic, options, writer, batch)

    return publish


class HealthAlerts:
    """Publishes what has changed since the last time."""

    def __init__(self, state: Path, publish: Publish) -> None:
        self._file, self._publish = state, publish
        self._writer, self._batch = f"health-{uuid.uuid4().hex}", 0
        self._raised: dict[str, Alert] = {}
        if state.is_file():
            kept = msgspec.json.decode(state.read_bytes())
            self._writer, self._batch, self._raised = kept["writer"], kept["batch"], kept["raised"]
        else:
            self._keep()

    def update(self, alerts: Iterable[Alert]) -> list[Alert]:
        """Give all alerts for which there is a reason now; returns what was published."""
        now = {f"{alert['kind']} {alert.get('broker') or alert.get('what')}": alert for alert in alerts}
        news = [alert for key, alert in now.items() if key not in self._raised]
        news += [{**alert, "is_over": True} for key, alert in self._raised.items() if key not in now]
        if news:
            # Published before it is kept: after a crash the batch is published again, and the broker skips it.
            self._publish(self._writer, self._batch + 1, news)
            self._batch, self._raised = self._batch + 1, now
            self._keep()
        return news

    def _keep(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_suffix(".new")
        kept = {"writer": self._writer, "batch": self._batch, "raised": self._raised}
        written.write_bytes(msgspec.json.encode(kept))
        written.replace(self._file)


def _rows(run: Run | None, table: str) -> list[dict[str, Any]]:
    if run is None or not (run.tables / table).is_dir():
        return []
    found: list[dict[str, Any]] = pq.read_table(run.tables / table).to_pylist()
    return found
