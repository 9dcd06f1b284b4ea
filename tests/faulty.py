"""A broker with a fault: `python tests/faulty.py FAULT FILE broker ...` is `overlane broker ...`, and one method of it
raises an unexpected exception where it meets with the word `poison`. With `up` all brokers have the fault.

A fault that is armed by its file is raised once and disarms itself, so that a process that is started again is sound.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from websockets.server import ServerProtocol

from overlane.cli.main import app
from overlane.core.broker import OverlayBroker
from overlane.core.flows.sink import Sink
from overlane.core.frame_dispatch import FrameDispatcher
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.wire.control_messages import InterestUpdate
from overlane.mqtt.connection import Connection
from overlane.mqtt.handshake import Handshake
from overlane.mqtt.keep_alive import KeepAlive
from overlane.mqtt.packets import Packets
from overlane.node.driver import Driver
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.dialling.dialling import Dialling
from overlane.node.node import Node
from overlane.node.security.logins import Logins
from overlane.node.store.record_file import RecordFile
from overlane.node.supervision import supervisor
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.sessions.wills import Wills
from overlane.turn.client_link import ClientLink
from overlane.turn.turn import Turn

POISON = "poison"


class Bug(Exception):
    """What nobody expects."""


def before(owner: type, name: str, is_met: Callable[..., bool]) -> None:
    """Let a method raise, with nothing done, when its arguments are such."""
    method = getattr(owner, name)

    def faulty(self: Any, *given: Any, **named: Any) -> Any:
        if is_met(self, *given, **named):
            raise Bug(name)
        return method(self, *given, **named)

    setattr(owner, name, faulty)


def after(owner: type, name: str, is_met: Callable[..., bool]) -> None:
    """Let a method raise when all is done."""
    method = getattr(owner, name)

    def faulty(self: Any, *given: Any, **named: Any) -> Any:
        answer = method(self, *given, **named)
        if is_met(self, *given, **named):
            raise Bug(name)
        return answer

    setattr(owner, name, faulty)


def has_poison(_self: object, *given: Any, **_named: Any) -> bool:
    return any(POISON.encode() in bytes(one) for one in given if isinstance(one, bytes | memoryview))


def runs_poison(_self: object, run: Any, *_given: Any) -> bool:
    """A run with such a message."""
    return any(POISON.encode() in message.payload for message in run.messages)


def concerns_poison(_self: object, *given: Any, **_named: Any) -> bool:
    """A message with poison in it."""
    return any(POISON.encode() in getattr(one, "payload", b"") for one in given)


def once(file: Path, is_met: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., bool]:
    def is_met_once(*given: Any, **named: Any) -> bool:
        if not file.exists() or not is_met(*given, **named):
            return False
        file.unlink()
        return True

    return is_met_once


def is_called_poison(_self: object, connection: Connection, *_: Any) -> bool:
    return connection.session is not None and connection.session.client_id == POISON


def is_for_second(_self: object, session: Any, message: Any, *_: Any, **__: Any) -> bool:
    return bool(session.client_id == "second" and POISON.encode() in message.payload)


def dial_in_vain(file: Path) -> None:
    async def faulty(_self: Dialling, _name: str) -> None:
        while not file.exists():
            await asyncio.sleep(0.01)
        file.unlink()
        raise Bug("dialling")

    setattr(Dialling, "_keep_dialling", faulty)  # noqa: B010


def call_in_vain(file: Path) -> None:
    run = Node.run

    async def faulty(self: Node) -> None:
        loop = asyncio.get_running_loop()

        def look() -> None:
            loop.call_later(0.01, look)
            if file.exists():
                file.unlink()
                raise Bug("callback")

        look()
        await run(self)

    Node.run = faulty  # type: ignore[method-assign]


def stand_still(file: Path) -> None:
    """Turns are asked for and never ended, once the file is there."""
    end_turn_soon = Driver.end_turn_soon

    def faulty(self: Driver) -> None:
        if file.exists():
            self.turn.is_open = True
        else:
            end_turn_soon(self)

    Driver.end_turn_soon = faulty  # type: ignore[method-assign]


def close_listener(file: Path) -> None:
    """While the file is there nobody can connect, though everything else goes on."""
    run = Node.run

    async def faulty(self: Node) -> None:
        loop = asyncio.get_running_loop()

        def look() -> None:
            if file.exists():
                self._listeners._listeners[0].close()
            else:
                loop.call_later(0.01, look)

        look()
        await run(self)

    Node.run = faulty  # type: ignore[method-assign]


def write_slowly(file: Path) -> None:
    """While the file is there the disk does not answer."""
    write = RecordFile.write

    def faulty(self: RecordFile, changes: Any) -> None:
        while file.exists():
            time.sleep(0.01)
        write(self, changes)

    RecordFile.write = faulty  # type: ignore[method-assign]


def is_poison_will(_self: object, message: Any, *_: Any, **named: Any) -> bool:
    return bool(named.get("is_will")) and POISON.encode() in message.payload


FAULTS: dict[str, Callable[[Path], None]] = {
    "packet": lambda _: before(Packets, "take", has_poison),
    "run": lambda _: before(Publishing, "publish_run", runs_poison),
    "handshake": lambda _: before(Handshake, "connect", lambda _, __, packet, *___: packet.client_id == POISON),
    "lost": lambda _: before(Wills, "lost", lambda _, session, *__: session.client_id == POISON),
    "queueing": lambda file: before(Delivery, "give", once(file, is_for_second)),
    "queueing always": lambda _: before(Delivery, "give", is_for_second),
    "sending": lambda file: before(Connection, "take", once(file, concerns_poison)),
    "sending always": lambda _: before(Connection, "take", concerns_poison),
    "keep-alive": lambda _: before(KeepAlive, "_look", is_called_poison),
    "login": lambda _: before(Logins, "log_in", lambda _, name, *__: name == POISON),
    "write": lambda _: before(ClientLink, "_write", lambda _, chunks: any(POISON.encode() in one for one in chunks)),
    "interest": lambda _: before(
        FrameDispatcher,
        "_control",
        lambda _, __, message, *___: (
            isinstance(message, InterestUpdate) and any(POISON in one for one in message.added)
        ),
    ),
    "parcel": lambda file: after(Sink, "_hand_on", once(file, lambda _, __, arrival, *___: POISON in str(arrival))),
    "end of turn": lambda file: before(OverlayBroker, "flush", once(file)),
    "commit": lambda file: before(Turn, "committed", once(file)),
    "task": dial_in_vain,
    "callback": call_in_vain,
    "standstill": stand_still,
    "pull": lambda file: before(LinkSupervisor, "pull", once(file)),
    "datagram": lambda file: before(DatagramLink, "_take", once(file)),
    "datagram timer": lambda file: before(DatagramLink, "_tend", once(file)),
    "websocket": lambda _: before(ServerProtocol, "receive_data", has_poison),
    "will": lambda _: before(Publishing, "accept", is_poison_will),
    "admin": lambda file: before(uvicorn.Server, "on_tick", once(file)),
    "closed listener": close_listener,
    "slow store": write_slowly,
}


def command_with_fault(*given: Any) -> list[str]:
    _, _, _, *rest = supervisor_command(*given)
    return [sys.executable, __file__, fault, str(armed), *rest]


if __name__ == "__main__":
    fault, armed = sys.argv[1], Path(sys.argv[2])
    FAULTS[fault](armed)
    supervisor_command = supervisor._command
    setattr(supervisor, "_command", command_with_fault)  # noqa: B010
    app(sys.argv[3:], prog_name="overlane")
