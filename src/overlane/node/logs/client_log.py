"""The client log: notices of the MQTT server, as lines of the log.

Connects and disconnects are logged at level info, refusals as warnings. Strangers can cause both at will, so of each
kind only some are logged in each period, and then the number of the others.
"""

import logging
from collections.abc import Sequence
from typing import assert_never

from overlane.core.units import SECOND, Nanos
from overlane.node.logs.lines import CLIENTS, fields
from overlane.node.logs.throttle import Throttle
from overlane.pubsub.counters import Refusal
from overlane.pubsub.notices import Connected, Left, Notice, PassedOn, RefusalNotice

PERIOD: Nanos = 10 * SECOND
REFUSALS_MAX = 10
"""Lines a period for each reason."""
COMINGS_MAX = 1_000
"""Lines a period about those who come, and as many about those who leave."""

CLIENT_CHARS_MAX = 256
"""Of an identifier that was refused for being too long."""

log = logging.getLogger(CLIENTS)


class ClientLog:
    def __init__(self) -> None:
        self._refusals: Throttle[Refusal] = Throttle(REFUSALS_MAX, PERIOD)
        self._comings: Throttle[str] = Throttle(COMINGS_MAX, PERIOD)
        self._left_out = 0

    def write(self, notices: Sequence[Notice], left_out: int, now: Nanos) -> None:
        """The notices of a turn, and how many it had beyond these."""
        self._left_out += left_out
        for notice in notices:
            match notice:
                case Connected():
                    if self._comings.passes("connected", now):
                        _tell_connected(notice)
                case PassedOn():
                    if self._comings.passes("passed on", now):
                        _tell_passed_on(notice)
                case Left(client_id, peer, why):
                    if self._comings.passes("left", now):
                        log.info("left", extra=fields(client=client_id, address=peer.address, why=why))
                case RefusalNotice(why):
                    if self._refusals.passes(why, now):
                        _tell_refused(notice)
                case _:
                    assert_never(notice)

    def tick(self, now: Nanos) -> None:
        """About once per second: log how many notices were suppressed."""
        for refusal, count in self._refusals.due(now):
            log.warning("refused, repeated", extra=fields(reason=refusal.value, count=count))
        for kind, count in self._comings.due(now):
            log.info("%s, repeated", kind, extra=fields(count=count))
        if self._left_out:
            log.warning("some events were not logged; metrics count all of them", extra=fields(count=self._left_out))
            self._left_out = 0


def _tell_connected(notice: Connected) -> None:
    peer = notice.peer
    protocol, _, version = notice.protocol.partition(" ")
    log.info(
        "connected",
        extra=fields(
            client=notice.client_id,
            user=notice.user,
            address=peer.address,
            listener=peer.listener,
            via=peer.via or None,
            protocol=protocol,
            version=version or None,
            resumed=notice.is_resumed,
        ),
    )


def _tell_passed_on(notice: PassedOn) -> None:
    log.info(
        "redirected" if notice.is_redirected else "passed on",
        extra=fields(client=notice.client_id, user=notice.user, address=notice.peer.address, broker=notice.broker),
    )


def _tell_refused(notice: RefusalNotice) -> None:
    address = notice.peer.address if notice.peer is not None else None
    client = notice.client_id[:CLIENT_CHARS_MAX] if notice.client_id is not None else None
    log.warning("refused", extra=fields(reason=notice.why.value, told=notice.told, client=client, address=address))
