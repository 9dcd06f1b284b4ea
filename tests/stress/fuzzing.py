"""Strangers who send bad bytes to a running broker, over TCP or as WebSockets, and listen to what it says to that."""

import base64
import select
import socket
from collections import Counter
from random import Random

from badbytes import BadBytes

from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.codec.framing import packet_end

PATIENCE_S = 30.0
QUIET_S = 0.01
"""After so much silence the broker has nothing more to say, as a rule."""
CONNACK = 0x20
CLOSE = 0x88
BINARY = 0x82
HANDSHAKE = (
    "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Hung(AssertionError):
    """The broker neither answered nor closed."""


class Fuzzer:
    """`outcomes` counts how connections ended, and with which packets."""

    def __init__(self, port: int, websocket_port: int, seed: int) -> None:
        self._port = port
        self._websocket_port = websocket_port
        self._luck = Random(seed)
        self._bytes = BadBytes(self._luck)
        self.outcomes: Counter[str] = Counter()
        self.last: list[bytes] = []
        """What was sent last, for whoever has to find out."""

    def attack(self) -> None:
        """One connection, from its beginning to its end."""
        said = self._bytes.conversation()
        if self._luck.random() < 0.6:
            self.last = said
            heard = self._converse(self._port, said)
            if heard is not None:
                self._check(heard)
        else:
            self._attack_by_websocket(said)

    def _attack_by_websocket(self, said: list[bytes]) -> None:
        luck = self._luck
        key = base64.b64encode(luck.randbytes(16)).decode()
        handshake = (HANDSHAKE % key).encode()
        if luck.random() < 0.1:
            handshake = self._bytes.spoilt(handshake)
        frames = [self._frame(piece) for piece in said]
        self.last = [handshake, *frames]
        heard = self._converse(self._websocket_port, self.last)
        if heard is not None and heard.startswith(b"HTTP/1.1 101 "):
            self._check(unframed(heard.partition(b"\r\n\r\n")[2]))

    def _frame(self, data: bytes) -> bytes:
        luck = self._luck
        first = BINARY if luck.random() < 0.95 else luck.randrange(256)
        mask = luck.randbytes(4)
        if len(data) < 126:
            head = bytes((first, 0x80 | len(data)))
        elif len(data) < 65_536:
            head = bytes((first, 0x80 | 126)) + len(data).to_bytes(2)
        else:
            head = bytes((first, 0x80 | 127)) + len(data).to_bytes(8)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        frame = head + mask + masked
        return self._bytes.spoilt(frame) if luck.random() < 0.1 else frame

    def _converse(self, port: int, said: list[bytes]) -> bytes | None:
        """What the broker said until it closed; None if it was in no mood to listen to the end."""
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            heard = b""
            try:
                for piece in said:
                    line.sendall(piece)
                # What leaves with the last word does not hear the answer.
                while select.select([line], [], [], QUIET_S)[0] and (data := line.recv(65_536)):
                    heard += data
                line.shutdown(socket.SHUT_WR)
                while data := line.recv(65_536):
                    heard += data
            except TimeoutError:
                raise Hung(f"neither answered nor closed, having said {heard[:200]!r}") from None
            except OSError:  # reset, in one of its guises
                self.outcomes["reset"] += 1
                return None
            self.outcomes["closed"] += 1
            return heard

    def _check(self, heard: bytes) -> None:
        """Whatever it said was MQTT."""
        if not heard:
            return
        assert heard[0] == CONNACK, f"the first packet is {heard[:20].hex(' ')}"
        codec = codec311 if heard[1] == 2 else codec5
        position = 0
        while position < len(heard):
            end = packet_end(heard, position)
            assert 0 < end <= len(heard), f"half a packet at the end: {heard[position:][:20].hex(' ')}"
            packet = codec.read(heard[position:end])
            self.outcomes[type(packet).__name__] += 1
            position = end


def unframed(data: bytes) -> bytes:
    """What was in the binary frames of a server."""
    content, position = b"", 0
    while position + 2 <= len(data):
        first, size = data[position], data[position + 1]
        assert not size & 0x80, "a server's frames are not masked"
        position += 2
        if size == 126:
            size, position = int.from_bytes(data[position : position + 2]), position + 2
        elif size == 127:
            size, position = int.from_bytes(data[position : position + 8]), position + 8
        if first == BINARY:
            content += data[position : position + size]
        position += size
    return content
