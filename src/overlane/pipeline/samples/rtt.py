"""Measured round-trip times of other networks as link telemetry.

A history is an array `rtt` of time slice, from, to: seconds, zero without an answer. Every pair that ever answered
becomes a link, with half the round-trip time as its latency; it is down in slices without an answer. Slices without any
answer are skipped.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overlane.errors import ConfigError, Fault
from overlane.pipeline.samples.sample import START_S
from overlane.pipeline.units import SECOND_NS
from overlane.telemetry.schema import SCHEMAS

SLICE_S = 3_600


def import_rtt(history: Path, lake: Path, slice_s: int = SLICE_S, start_s: int = START_S) -> int:
    """Writes the links of a history into the lake; how many rows. ConfigError where the file is no history."""
    rtt = _read(history)
    nodes = rtt.shape[1]
    names = pa.array([f"node-{number:02d}" for number in range(nodes)])
    looked = (rtt > 0).any(axis=(1, 2))
    ever = (rtt > 0).any(axis=0) & ~np.eye(nodes, dtype=np.bool_)
    rows = 0
    date = datetime.fromtimestamp(start_s, UTC).date()
    directory = lake / "links" / f"date={date}"
    directory.mkdir(parents=True, exist_ok=True)
    when = np.flatnonzero(looked)
    for node in range(nodes):
        peers = np.flatnonzero(ever[node])
        if len(peers) == 0:
            continue
        at, peer = (grid.ravel() for grid in np.meshgrid(when, peers, indexing="ij"))
        measured = rtt[at, node, peer]
        table = _links(names, node, (at + 1) * slice_s + start_s, names.take(pa.array(peer)), measured, slice_s)
        pq.write_table(table, directory / f"{names[node]}-1-1.parquet", compression="zstd")
        rows += len(at)
    return rows


def _read(history: Path) -> Any:
    allowed = "an .npz file with an array rtt of slices x nodes x nodes, in seconds"
    try:
        with np.load(history, allow_pickle=False) as arrays:
            rtt = arrays["rtt"]
    except (OSError, ValueError, KeyError) as wrong:
        raise ConfigError([Fault(str(history), 0, "", str(wrong), allowed)]) from None
    if rtt.ndim != 3 or rtt.shape[1] != rtt.shape[2] or not np.isfinite(rtt).all() or (rtt < 0).any():
        raise ConfigError([Fault(str(history), 0, "rtt", f"an array of shape {rtt.shape}", allowed)])
    return rtt


def _links(names: Any, node: int, at_s: Any, peers: Any, rtt_s: Any, slice_s: int) -> Any:
    rows = len(at_s)
    answered = rtt_s > 0
    latency_ns = (rtt_s.astype(np.float64) / 2 * SECOND_NS).astype(np.int64)
    nothing = pa.array(np.zeros(rows, dtype=np.int64))
    given = {
        "at_ns": pa.array(at_s * SECOND_NS),
        "broker": pa.repeat(names[node], rows),
        "incarnation": pa.array(np.ones(rows, dtype=np.int64)),
        "interval_ns": pa.array(np.full(rows, slice_s * SECOND_NS)),
        "peer": peers,
        "state": pa.array(["failed", "up"]).take(pa.array(answered.astype(np.int64))),
        "latency_ns": pa.array(latency_ns, mask=~answered),
    }
    schema = SCHEMAS["links"]
    nulls = {field.name: pa.nulls(rows, field.type) for field in schema if field.nullable}
    arrays = [given.get(field.name, nulls.get(field.name, nothing)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
