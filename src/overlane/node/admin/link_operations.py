"""The operations of the admin API that change the overlay: add and remove neighbours, leave the overlay for good and,
if the broker was started with `--chaos`, change the emulation of links.

These changes last until the broker ends; permanent changes belong in the network file.
"""

import asyncio
import logging

from overlane.adminapi.views import ErrorView
from overlane.core.events import Leave
from overlane.network.schema import Endpoint
from overlane.network.syntax.kinds import endpoint, name
from overlane.node.admin.operations import Answer, Asked, BadAdminRequest, Operation, Parameter, json_answer
from overlane.node.driver import Driver
from overlane.node.links.emulation import LinkConditions
from overlane.node.links.overlay import Overlay
from overlane.node.reconfiguring import Reconfiguring
from overlane.quantities import parse_duration, parse_rate

LEAVE_S = 1.5
"""How long a broker that leaves stays, so that the word gets round."""

log = logging.getLogger("overlane.admin")

_PEER = Parameter("id", "The neighbour's name.", "path")
_CONDITIONS = (
    Parameter("latency", "One way, such as 80ms."),
    Parameter("jitter", "Such as 3ms."),
    Parameter("loss", "Share of lost packets, from 0 to 1: delays on the connection, losses of datagrams."),
    Parameter("rate", "Such as 10Mbit."),
    Parameter("cut", "true: nothing is transmitted."),
)


class LinkOperations:
    def __init__(self, driver: Driver, reconfiguring: Reconfiguring, overlay: Overlay, *, is_chaotic: bool) -> None:
        self._driver = driver
        self._reconfiguring = reconfiguring
        self._overlay = overlay
        self._is_chaotic = is_chaotic
        self.left = asyncio.Event()
        """Set when the broker has left the overlay and may end."""
        self._leaving: asyncio.Task[None] | None = None
        wrong = {400: ErrorView}
        unknown = {404: ErrorView}
        self.all: tuple[Operation, ...] = (
            Operation(
                "PUT",
                "/links/{id}",
                "Add a link to a neighbour.",
                self._join,
                {204: None, **wrong},
                (
                    _PEER,
                    Parameter(
                        "address",
                        "Addresses of the neighbour, host:port, separated by commas; if empty, the neighbour connects.",
                    ),
                ),
            ),
            Operation(
                "DELETE", "/links/{id}", "Remove the link to a neighbour.", self._part, {204: None, **unknown}, (_PEER,)
            ),
            Operation(
                "PUT",
                "/emulation/{id}",
                "Emulate conditions in this broker's direction of a link; omitted ones are ideal.",
                self._emulate,
                {204: None, 403: ErrorView, **wrong, **unknown},
                (_PEER, *_CONDITIONS),
            ),
            Operation(
                "DELETE",
                "/emulation/{id}",
                "Restore this broker's direction of a link to the conditions of the network file.",
                self._heal,
                {204: None, 403: ErrorView, **unknown},
                (_PEER,),
            ),
            Operation("POST", "/leave", "Leave the overlay permanently, and shut down.", self._leave, {204: None}),
        )

    async def _join(self, asked: Asked) -> Answer:
        peer = asked["id"]
        try:
            name().read(peer)
            addresses: list[Endpoint] = [endpoint().read(one) for one in asked.get("address", "").split(",") if one]
        except ValueError:
            raise BadAdminRequest("a name, and addresses such as 10.0.0.1:7001, are needed") from None
        if peer == self._driver.core.name:
            raise BadAdminRequest("a broker cannot be its own neighbour")
        self._reconfiguring.link(peer, addresses)
        log.info("added neighbour %s", peer)
        return Answer(204, b"")

    async def _part(self, asked: Asked) -> Answer:
        if asked["id"] not in self._overlay.neighbours:
            return _unknown()
        self._reconfiguring.unlink(asked["id"])
        return Answer(204, b"")

    async def _emulate(self, asked: Asked) -> Answer:
        if not self._is_chaotic:
            return _not_chaotic()
        if asked["id"] not in self._overlay.neighbours:
            return _unknown()
        self._overlay.emulate(asked["id"], conditions_of(asked))
        return Answer(204, b"")

    async def _heal(self, asked: Asked) -> Answer:
        if not self._is_chaotic:
            return _not_chaotic()
        if asked["id"] not in self._overlay.neighbours:
            return _unknown()
        self._overlay.heal(asked["id"])
        return Answer(204, b"")

    async def _leave(self, _: Asked) -> Answer:
        self.leave()
        return Answer(204, b"")

    def leave(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._say_goodbye())

    async def _say_goodbye(self) -> None:
        log.info("leaving the overlay permanently")
        self._driver.tell_core(Leave())
        await asyncio.sleep(LEAVE_S)
        self.left.set()


def conditions_of(asked: Asked) -> LinkConditions:
    """The link conditions in the parameters of a request; BadAdminRequest."""
    try:
        loss = float(asked.get("loss", "0"))
        conditions = LinkConditions(
            latency_ns=parse_duration(asked.get("latency", "0ms")),
            jitter_ns=parse_duration(asked.get("jitter", "0ms")),
            loss=loss,
            rate_bps=parse_rate(asked["rate"]) if "rate" in asked else None,
            is_cut=asked.get("cut", "false") == "true",
        )
    except ValueError:
        raise BadAdminRequest("allowed are latency=80ms, jitter=3ms, loss=0.01, rate=10Mbit and cut=true") from None
    if conditions.latency_ns < 0 or conditions.jitter_ns < 0 or not 0 <= loss <= 1 or conditions.rate_bps == 0:
        raise BadAdminRequest("durations must not be negative, the rate not 0, and the loss from 0 to 1")
    return conditions


def _unknown() -> Answer:
    return json_answer(ErrorView(error="no such neighbour"), 404)


def _not_chaotic() -> Answer:
    return json_answer(ErrorView(error="links are made to fail only where the broker was started with --chaos"), 403)
