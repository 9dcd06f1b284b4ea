"""A broker that forwards nothing while a file is there, and is otherwise as any: `python blackhole.py FILE broker ...`.

It still answers pings, notices and its own clients, tells its links and its interest, and sets up routes.
"""

import sys
from pathlib import Path
from typing import Any

from overlane.cli.main import run
from overlane.core.flows.cut_through import CutThrough
from overlane.core.routing.forwarding.forwarding import Forwarding
from overlane.core.routing.signalling.route_establishment import RouteEntry
from overlane.core.wire.control_messages import Receipt
from overlane.core.wire.route_answers import Answer

SIGN = Path(sys.argv.pop(1))

forward, pass_on, passes = Forwarding.forward, Forwarding.pass_on, CutThrough.try_forward
post, confirm = Forwarding.post, Forwarding.confirm


def keep_to_itself(
    self: Forwarding, entry: Any, header: Any, rest: Any, entered: int, sender: str | None, now: int
) -> bool:
    if sender is not None and SIGN.exists():
        return True
    return forward(self, entry, header, rest, entered, sender, now)


def end_detour(self: Forwarding, *more: Any) -> None:
    if not SIGN.exists():
        pass_on(self, *more)


def lose_receipt(self: Forwarding, receipt: Receipt) -> None:
    if receipt.sender == self._me or not SIGN.exists():
        post(self, receipt)


def lose_confirmation(self: Forwarding, entry: RouteEntry, told: Answer) -> None:
    if entry.message.brokers[told.destination] == self._me or not SIGN.exists():
        confirm(self, entry, told)


def pass_nothing_by(self: CutThrough, *more: Any) -> bool:
    return not SIGN.exists() and passes(self, *more)


for place, name, stand_in in (
    (Forwarding, "forward", keep_to_itself),
    (Forwarding, "pass_on", end_detour),
    (Forwarding, "post", lose_receipt),
    (Forwarding, "confirm", lose_confirmation),
    (CutThrough, "try_forward", pass_nothing_by),
):
    setattr(place, name, stand_in)
run()
