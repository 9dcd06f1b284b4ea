"""A side with MQTT 3.1.1, for brokers that do not speak MQTT 5. QoS 0 and 1, a session that lasts.

It connects as a bridge (bit 0x80 of the protocol level, as bridges of Mosquitto do): the broker does not return
messages to the connection they came from, and keeps the retain flag. Messages of 3.1.1 have no properties, so nothing
else protects from loops: a broker that refuses bridges is used only if no topic goes both ways.

`held` has the messages that have arrived and are not acknowledged. A broker sends them again after a lost connection;
they are known by their packet id and content, and not passed on twice.
"""

import asyncio
import ssl
from collections.abc import Callable

from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.mqtt5 import Mqtt5Options
from overlane.gateways.sides.side import Pauses, Side, SideHost
from overlane.membership.endpoint import Endpoint
from overlane.mqtt.codec.fields import text, u16, write_binary, write_text, write_variable
from overlane.mqtt.codec.malformed import Malformed
from overlane.mqtt.codec.writing import PINGREQ, PUBACK, ack, publish

KEEP_ALIVE_S = 10
SILENT_S = 25.0
CONNECT_WITHIN_S = 10.0
PACKET_BYTES_MAX = 16 * 2**20
PACKET_IDS = 65_535
V311 = 4
BRIDGE_BIT = 0x80
BAD_VERSION = 1
REFUSALS = {
    1: "it does not accept the protocol version",
    2: "it does not accept the client identifier",
    3: "it is unavailable",
    4: "wrong user name or password",
    5: "not authorised",
}


class _Lost(Exception):
    """The connection cannot be used any more."""


class Mqtt311Side(Side):
    def __init__(
        self, host: SideHost, options: Mqtt5Options, endpoints: tuple[Endpoint, ...], *, needs_bridge: bool
    ) -> None:
        """`needs_bridge`: some topic goes both ways."""
        super().__init__(host)
        self._options = options
        self._endpoints = endpoints
        self._needs_bridge = needs_bridge
        self._is_bridge = True
        self._writer: asyncio.StreamWriter | None = None
        self._next_id = 0
        self._sent: dict[int, int] = {}
        """Numbers of what the broker has not acknowledged, by packet id."""
        self._held: dict[int, tuple[str, bytes]] = {}

    async def run(self) -> None:
        pauses, turn = Pauses(), 0
        while True:
            endpoint = self._endpoints[turn % len(self._endpoints)]
            turn += 1
            try:
                await self._live(endpoint, pauses.connected)
            except (OSError, ssl.SSLError, EOFError, TimeoutError, _Lost, Malformed) as error:
                self._close()
                self.host.down(f"{endpoint}: {_explained(error)}", forgot_sent=True)
            finally:
                self._close()
            await pauses.wait()

    def send(self, number: int, message: BridgedMessage) -> None:
        if self._writer is None:
            return  # `down` has told that it is forgotten
        qos = min(message.qos, self._options.qos, 1)
        packet_id = 0
        if qos:
            packet_id = self._free_id()
            self._sent[packet_id] = number
        self._writer.write(
            publish(V311, message.topic.encode(), message.body, qos, message.retain, False, packet_id, b"")
        )
        if not qos:
            self.host.accepted(number)

    def acknowledge(self, receipt: object) -> None:
        assert isinstance(receipt, int)
        if self._held.pop(receipt, None) is not None and self._writer is not None:
            self._writer.write(ack(V311, PUBACK, receipt))

    # Inside

    async def _live(self, endpoint: Endpoint, connected: Callable[[], None]) -> None:
        context = self._options.tls.context() if self._options.tls is not None else None
        async with asyncio.timeout(CONNECT_WITHIN_S):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
            try:
                writer.write(self._connect_packet())
                kind, body = await _read_packet(reader)
                self._connack(kind, body)
                self._writer = writer
                writer.write(self._subscribe_packet())
            except BaseException:
                writer.close()
                raise
        connected()
        if not self._options.filters:
            self.host.up()
        pinging = asyncio.create_task(_ping(writer))
        try:
            while True:
                async with asyncio.timeout(SILENT_S):
                    kind, body = await _read_packet(reader)
                self._received(kind, body)
                await writer.drain()
        finally:
            pinging.cancel()

    def _connack(self, kind: int, body: bytes) -> None:
        if kind >> 4 != 2 or len(body) != 2:
            raise _Lost("not an MQTT broker: no CONNACK")
        if body[1] == BAD_VERSION and self._is_bridge:
            if self._needs_bridge:
                raise _Lost("it does not accept bridges, and topics that go both ways would loop: use one direction")
            self._is_bridge = False
        if body[1]:
            raise _Lost(f"connection refused: {REFUSALS.get(body[1], body[1])}")
        if not body[0] & 1:
            self._held.clear()

    def _received(self, kind: int, body: bytes) -> None:
        match kind >> 4:
            case 3:
                self._arrived(kind, body)
            case 4:
                number = self._sent.pop(u16(body, 0), None)
                if number is not None:
                    self.host.accepted(number)
            case 9 if 0x80 in body[2:]:
                raise _Lost("it refuses the subscription")
            case 9:
                self.host.up()  # nothing is missed from now on
            case 13:
                pass
            case other:
                raise _Lost(f"unexpected packet of type {other}")

    def _arrived(self, kind: int, body: bytes) -> None:
        qos = kind >> 1 & 3
        topic, position = text(body, 0)
        if qos > 1:
            raise _Lost("a message of QoS 2 that was not subscribed to")
        packet_id = 0
        if qos:
            packet_id = u16(body, position)
            position += 2
        payload = bytes(body[position:])
        if qos:
            if self._held.get(packet_id) == (topic, payload) and kind & 8:
                return
            self._held[packet_id] = topic, payload
        message = BridgedMessage(topic, payload, qos, bool(kind & 1))
        self.host.arrived(message, packet_id if qos else None)

    def _connect_packet(self) -> bytes:
        options = self._options
        level = V311 | (BRIDGE_BIT if self._is_bridge else 0)
        flags = (0x80 if options.user is not None else 0) | (0x40 if options.password is not None else 0)
        body = write_text("MQTT") + bytes((level, flags)) + KEEP_ALIVE_S.to_bytes(2) + write_text(options.client_id)
        if options.user is not None:
            body += write_text(options.user)
        if options.password is not None:
            body += write_binary(options.password)
        return b"\x10" + write_variable(len(body)) + body

    def _subscribe_packet(self) -> bytes:
        options = self._options
        if not options.filters:
            return PINGREQ
        prefix = "" if options.group is None else f"$share/{options.group}/"
        qos = bytes((min(options.qos, 1),))
        body = self._free_id().to_bytes(2) + b"".join(write_text(prefix + one) + qos for one in options.filters)
        return b"\x82" + write_variable(len(body)) + body

    def _free_id(self) -> int:
        while True:
            self._next_id = self._next_id % PACKET_IDS + 1
            if self._next_id not in self._sent:
                return self._next_id

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._sent.clear()


async def _read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind = (await reader.readexactly(1))[0]
    length, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
        if shift > 21:
            raise _Lost("a length of more than four bytes")
    if length > PACKET_BYTES_MAX:
        raise _Lost(f"a packet of {length} bytes; the maximum is {PACKET_BYTES_MAX}")
    return kind, await reader.readexactly(length)


async def _ping(writer: asyncio.StreamWriter) -> None:
    while True:
        await asyncio.sleep(KEEP_ALIVE_S / 2)
        writer.write(PINGREQ)


def _explained(error: BaseException) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case EOFError():
            return "the broker closed the connection"
        case ConnectionRefusedError():
            return "connection refused: nothing listens there"
        case OSError() if error.strerror:
            return error.strerror.lower()
        case _:
            return str(error) or type(error).__name__
