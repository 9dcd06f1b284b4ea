"""A process that subscribes, reads as fast as it can and acknowledges, and counts: are all there, in order?

    python keen.py PORT CLIENT FILTER QOS

Says "ready". The payload of a message begins with eight bytes: which publisher, and which of its messages. For every
line of input, a number, it waits until it has heard so many messages and tells what they were; it tells the same, short
of the number, when nothing more has come for a long time.
"""

import json
import select
import socket
import sys
import time
from struct import Struct

QUIET_S = 15.0
READ_BYTES = 1 << 20
PUBLISH = 3
PUBLISHER_SHIFT = 48

_number = Struct("!Q").unpack_from


class Tally:
    def __init__(self) -> None:
        self.count = 0
        self.missing = 0
        self.backward = 0
        self._next: dict[int, int] = {}

    def hear(self, number: int) -> None:
        publisher = number >> PUBLISHER_SHIFT
        wanted = self._next.get(publisher, publisher << PUBLISHER_SHIFT)
        if number > wanted:
            self.missing += number - wanted
        elif number < wanted:
            self.backward += 1
        self._next[publisher] = max(number, wanted - 1) + 1
        self.count += 1

    def told(self) -> dict[str, int]:
        return {"count": self.count, "missing": self.missing, "backward": self.backward}


class Reader:
    def __init__(self, port: int, client: str, topic: str, qos: int) -> None:
        self.line = socket.create_connection(("127.0.0.1", port), 30)
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tally = Tally()
        self._unread = b""
        name, wanted = client.encode(), topic.encode()
        head = b"\0\4MQTT\4\2\0\0" + len(name).to_bytes(2) + name
        self.line.sendall(bytes((0x10, len(head))) + head)
        asked = b"\0\1" + len(wanted).to_bytes(2) + wanted + bytes((qos,))
        self.line.sendall(bytes((0x82, len(asked))) + asked)
        answer = b""
        while len(answer) < 9:
            answer += self.line.recv(9 - len(answer))
        if answer != b"\x20\x02\0\0\x90\x03\0\1" + bytes((qos,)):
            raise SystemExit(f"not let in: {answer.hex(' ')}")

    def read(self) -> None:
        data = self.line.recv(READ_BYTES)
        if not data:
            raise SystemExit("cut off")
        data = self._unread + data if self._unread else data
        acknowledged = bytearray()
        position, end = 0, len(data)
        while position + 5 <= end:
            first, at, length, shift = data[position], position + 1, 0, 0
            while True:
                byte = data[at]
                length |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if byte < 0x80:
                    break
            if at + length > end:
                break
            if first >> 4 == PUBLISH:
                payload = at + 2 + (data[at] << 8 | data[at + 1])
                if first & 6:
                    acknowledged += b"\x40\x02" + data[payload : payload + 2]
                    payload += 2
                self.tally.hear(_number(data, payload)[0])
            position = at + length
        self._unread = data[position:]
        if acknowledged:
            self.line.sendall(acknowledged)


def main(port: int, client: str, topic: str, qos: int) -> None:
    reader = Reader(port, client, topic, qos)
    print(json.dumps("ready"), flush=True)
    wanted: int | None = None
    heard_s = time.monotonic()
    while True:
        if wanted is not None and (reader.tally.count >= wanted or time.monotonic() - heard_s > QUIET_S):
            print(json.dumps(reader.tally.told()), flush=True)
            wanted = None
        readable, _, _ = select.select([reader.line, *([sys.stdin] if wanted is None else [])], [], [], 1.0)
        if reader.line in readable:
            reader.read()
            heard_s = time.monotonic()
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            wanted, heard_s = int(line), time.monotonic()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
