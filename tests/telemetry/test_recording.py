"""A recording whose samples fail: the broker goes on, and its log stays short."""

import asyncio
import logging
from pathlib import Path

import pytest
from station import Station

from overlane.network.schema import Telemetry
from overlane.telemetry.recording import Recording


class Sabotaged:
    """A sampler that fails as it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def sample(self) -> None:
        if isinstance(self.error, KeyError):
            raise self.error
        if self.error is not None:
            raise self.error

    def told(self, losses: dict[tuple[str, str], int], at_ns: int) -> list[object]:  # noqa: ARG002
        return []


@pytest.mark.parametrize("times", [1, 10])
def test_a_sample_that_keeps_failing_is_logged_once_for_each_cause_then_counted_and_its_end_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    station = Station()
    recording = Recording(
        str(tmp_path), tmp_path / "spool", Telemetry(), station.server, station.core, station.lines, lambda: station.now
    )
    sampler = Sabotaged()
    recording._sampler = sampler  # type: ignore[assignment]
    caplog.set_level(logging.INFO, "overlane.telemetry")

    def look() -> None:
        asyncio.run(recording._try_to_look())

    for error in [ValueError("one"), KeyError("another")] * times:
        sampler.error = error
        look()
    assert [bool(record.exc_info) for record in caplog.records] == [True, True]
    assert recording.samples_failed == 2 * times
    sampler.error = None
    look()
    look()
    assert [record.getMessage() for record in caplog.records[2:]] == [
        f"telemetry samples succeed again; failed: {2 * times}"
    ]
    sampler.error = ValueError("one")
    look()
    assert len(caplog.records) == 4
