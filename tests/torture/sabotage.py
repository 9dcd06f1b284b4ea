"""A broker with a defect made on purpose, to see whether the checker finds it.

python sabotage.py DEFECT broker NETWORK.toml ...

drop    loses one of thirty messages that come from other brokers
twice   delivers one of thirty twice
swap    delivers one of thirty after the ones that came after it
early   acknowledges before the records are on disk
deaf    serves nobody any more after a while, and goes on to say that it is ready
noisy   has tracebacks in its log
"""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from overlane.cli.main import run
from overlane.core.events import TAKEN, Deliver, Reception
from overlane.core.units import Nanos
from overlane.node.driver import Driver
from overlane.node.store.durable import Done, Store
from overlane.node.store.record_file import RecordFile
from overlane.pubsub.cluster.arrivals import Arrivals, Mixed

ONE_OF = 30
HELD_FOR = 20
WRITTEN_AFTER_S = 2.0


def _arriving(change: Callable[[Any, Deliver, bool], Reception | None]) -> None:
    original = Arrivals.deliver
    count = 0

    def deliver(self: Arrivals, effect: Deliver, now: Nanos, opened: list[Mixed] | None = None) -> Reception:
        nonlocal count
        count += effect.reliable
        is_chosen = effect.reliable and count % ONE_OF == 0
        return change(lambda one: original(self, one, now, opened), effect, is_chosen) or TAKEN

    Arrivals.deliver = deliver  # type: ignore[method-assign]


def drop() -> None:
    _arriving(lambda deliver, effect, is_chosen: None if is_chosen else deliver(effect))


def twice() -> None:
    _arriving(lambda deliver, effect, is_chosen: max(deliver(effect) for _ in range(1 + is_chosen)))


def swap() -> None:
    held: list[tuple[int, Deliver]] = []
    count = 0

    def change(deliver: Any, effect: Deliver, is_chosen: bool) -> Reception:
        nonlocal count
        count += 1
        if is_chosen and not held:
            held.append((count, effect))
            return TAKEN
        reception: Reception = deliver(effect)
        if held and count > held[0][0] + HELD_FOR:
            deliver(held.pop()[1])
        return reception

    _arriving(change)


def early() -> None:
    submit, write = Store.submit, RecordFile.write

    def submit_early(self: Store, changes: Mapping[Any, bytes | None], done: Done, **_: bool) -> None:
        submit(self, changes, lambda _: None)
        self._soon(done, None)

    def write_late(self: RecordFile, changes: Any) -> None:
        time.sleep(WRITTEN_AFTER_S)
        write(self, changes)

    Store.submit = submit_early  # type: ignore[method-assign]
    RecordFile.write = write_late  # type: ignore[method-assign]


def deaf() -> None:
    end_turn = Driver._end_turn
    count = 0

    def listen(deliver: Any, effect: Deliver, is_chosen: bool) -> None:
        nonlocal count
        deliver(effect)
        count += is_chosen

    def end_some_turns(self: Driver) -> None:
        if not count:
            end_turn(self)

    _arriving(listen)
    Driver._end_turn = end_some_turns  # type: ignore[method-assign]
    Driver.is_stuck = property(lambda _: False)  # type: ignore[assignment]
    Driver.look = lambda _: None  # type: ignore[method-assign,assignment]


def noisy() -> None:
    def complain(deliver: Any, effect: Deliver, is_chosen: bool) -> None:
        deliver(effect)
        if is_chosen:
            try:
                raise RuntimeError("made on purpose")
            except RuntimeError:
                logging.getLogger("overlane.node").exception("something went wrong")

    _arriving(complain)


DEFECTS = {one.__name__: one for one in (drop, twice, swap, early, deaf, noisy)}

if __name__ == "__main__":
    DEFECTS[sys.argv.pop(1)]()
    run()
