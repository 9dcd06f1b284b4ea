"""Whether a broker on this machine has read what was sent to it: a condition to wait for, instead of a while."""

import select
import socket
import time
from pathlib import Path

TABLE = Path("/proc/net/tcp")
LOOK_EVERY_S = 0.005


def until_read(line: socket.socket, within_s: float) -> bool:
    """Read what the other side says until it has read all that was sent, or has closed; False if it takes too long."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        if select.select([line], [], [], LOOK_EVERY_S)[0]:
            if not line.recv(65_536):
                return True
        elif not unread_bytes(line):
            return True
    return False


def unread_bytes(line: socket.socket) -> int:
    """What waits in the two queues of the connection, some of it perhaps counted in both; 0 if the other side has
    closed. OSError if ours is closed."""
    here, there = line.getsockname()[1], line.getpeername()[1]
    ends = {(f":{here:04X}", f":{there:04X}"): 0, (f":{there:04X}", f":{here:04X}"): 0}
    for row in TABLE.read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = row.split()
        end = local[-5:], remote[-5:]
        if end in ends:
            sent, received = queues.split(":")
            # Of our end what was not taken over by the other one counts, of that what was not read.
            ends[end] = int(sent if local.endswith(f":{here:04X}") else received, 16)
    return sum(ends.values())
