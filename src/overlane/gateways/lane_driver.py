"""Drives a lane between two sides, and tells lanes and state what happens at a side. It decides nothing."""

import time
from collections.abc import Callable, Iterable
from typing import assert_never

from overlane.core.units import Nanos
from overlane.gateways.lane import Acknowledge, GatewayLane, LaneEffect, Send
from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.side import Side, SideHost
from overlane.gateways.state import SideState


def now_ns() -> Nanos:
    return time.monotonic_ns()


class LaneDriver:
    """One direction: gives messages to the receiving side, and acknowledgements to the sending side."""

    def __init__(self, lane: GatewayLane, changed: Callable[[], None]) -> None:
        self.lane = lane
        self.source: Side | None = None
        self.sink: Side | None = None
        self._changed = changed
        self._receipts: dict[int, object] = {}

    def arrived(self, message: BridgedMessage, receipt: object | None) -> None:
        if receipt is None and self.lane.is_full:
            self.lane.counts.dropped += 1
            return
        number, effects = self.lane.arrived(message, now_ns())
        if receipt is not None:
            self._receipts[number] = receipt
        self.carry_out(effects)

    def forget_source(self) -> None:
        """Receipts are worth nothing any more: the sending side delivers again what they were for."""
        self._receipts.clear()
        self.lane.source_forgot()

    def carry_out(self, effects: Iterable[LaneEffect]) -> None:
        assert self.source is not None
        assert self.sink is not None
        for effect in effects:
            match effect:
                case Send(number, message):
                    self.sink.send(number, message)
                case Acknowledge(number):
                    receipt = self._receipts.pop(number, None)
                    if receipt is not None:
                        self.source.acknowledge(receipt)
                case _:
                    assert_never(effect)
        self._changed()


class SideEvents(SideHost):
    """What happens at one side: `outgoing` is the lane that it fills, `incoming` the one that it empties."""

    def __init__(
        self,
        outgoing: LaneDriver,
        incoming: LaneDriver,
        state: SideState,
        keep: Callable[[int | None], None],
        changed: Callable[[], None],
    ) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._state = state
        self._keep = keep
        self._changed = changed

    def up(self) -> None:
        self._state.turn(True, time.time())
        self._outgoing.carry_out(self._outgoing.lane.source_opened(now_ns()))
        self._incoming.carry_out(self._incoming.lane.opened(now_ns()))

    def down(self, reason: str, *, forgot_sent: bool = False, forgot_receipts: bool = False) -> None:
        self._state.turn(False, time.time(), reason)
        self._incoming.lane.closed(forgot=forgot_sent)
        if forgot_receipts:
            self._outgoing.forget_source()
        self._changed()

    def trouble(self, reason: str) -> None:
        self._state.last_error = reason

    def arrived(self, message: BridgedMessage, receipt: object | None) -> None:
        self._outgoing.arrived(message, receipt)

    def accepted(self, number: int) -> None:
        self._incoming.carry_out(self._incoming.lane.accepted(number, now_ns()))

    def refused(self, number: int, reason: str, *, is_final: bool) -> None:
        self._incoming.carry_out(self._incoming.lane.refused(number, reason, now_ns(), is_final=is_final))

    def kept(self, messages: int | None) -> None:
        self._keep(messages)
