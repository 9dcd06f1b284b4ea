"""The writer: the thread that writes what the recorder hands over.

Failures here do not reach the broker. A full disk costs the rows of that time, which are counted; an unreachable lake
is retried with growing pauses, while journals wait on the local disk.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic

from overlane.telemetry.file_rotation import FileRotation
from overlane.telemetry.publishing import TelemetryPublisher
from overlane.telemetry.recorder import Batch, Recorder

PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 60.0
LOOK_EVERY_S = 2.5

log = logging.getLogger("overlane.telemetry")


class Writer:
    def __init__(self, recorder: Recorder, filing: FileRotation, publisher: TelemetryPublisher) -> None:
        """`publisher`: that of the rotation."""
        self._recorder = recorder
        self._filing = filing
        self._publisher = publisher
        self._thread = threading.Thread(target=self._run, name="overlane-telemetry", daemon=True)
        self._pause_s = 0.0
        self._again_at_s = 0.0
        self._trouble = ""
        self.rows_written = 0
        self.lost: Counter[str] = Counter()
        """Rows that the disk did not take, or that were not what they should be, by table."""

    @property
    def filing(self) -> FileRotation:
        return self._filing

    def start(self) -> None:
        self._thread.start()

    def close(self, patience_s: float) -> bool:
        """Write all there is. False if that takes longer: the next life of the broker does the rest."""
        self._recorder.close()
        if self._thread.is_alive():
            self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._try(self._filing.recover)
            is_last = False
            while not is_last:
                batches, is_last = self._recorder.take(LOOK_EVERY_S)
                for batch in batches:
                    self._record(batch)
                self._file(is_last)
                self._publisher.reap()
            self._publisher.close()
        except Exception:
            # A defect of ours; what follows is counted as lost, and the broker goes on.
            log.exception("telemetry stopped")

    def _record(self, batch: Batch) -> None:
        for table, rows in batch.items():
            try:
                self._filing.record(table, rows, monotonic())
                self.rows_written += len(rows)
            except (OSError, ValueError) as wrong:
                self.lost[table] += len(rows)
                self._complain(f"{len(rows)} rows of {table} are lost: {wrong}")
            self._recorder.done(table, len(rows))

    def _file(self, is_last: bool) -> None:
        if is_last:
            self._filing.seal_all()
        else:
            self._filing.seal_due(monotonic())
        if self._filing.is_behind:
            if is_last or monotonic() >= self._again_at_s:
                self._try(self._filing.publish)
            self._filing.trim_journals()

    def _try(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except OSError as wrong:
            self._pause_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, 2 * self._pause_s))
            self._again_at_s = monotonic() + self._pause_s
            self._complain(str(wrong))
            return False
        self._pause_s = 0.0
        self._complain("")
        return True

    def _complain(self, trouble: str) -> None:
        """Once when trouble begins, and once when it is over."""
        if trouble and not self._trouble:
            log.warning("telemetry cannot be written: %s", trouble)
        elif self._trouble and not trouble:
            log.info("writing telemetry again")
        self._trouble = trouble
