"""When the broker reads from a neighbour again, so that its data is forwarded, or on disk, before more is read.

After an incomplete read, the next one waits for the end of the turn. If the queue to another neighbour is full, it
waits until there is space, or for a limited time: shorter if urgent parcels come from this neighbour (at most a part of
their laxity), longer otherwise. In this time a neighbour with a busy processor catches up. A slow link must not block
other neighbours or pings.

A neighbour that causes many records is read again when they are on disk, and little at a time: acknowledgements of
clients wait for the same disk and the same loop. A disk may be slow, or broken: the link must not fail for that.
"""

import asyncio
from typing import Protocol

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.node.links.link_host import LinkHost

MUCH_BYTES = 16 * 1024
"""After a read of so much, more may be there."""
PATIENCE_NS: Nanos = 20 * MS
CALM_PATIENCE_NS: Nanos = 500 * MS
"""How long reading is paused for other neighbours, with something urgent and without."""
MOVING_BYTES = 128 * 1024
"""Where the others have taken so much within the longer of these times they are busy, not slow: it begins anew."""
LOOK_AGAIN_S = 0.001
RECORDED_BYTES_MAX = 64 * 1024
"""Of records that are not on disk yet; after more, reading is paused and then slow."""
READ_SLOWLY_BYTES = 4 * 1024


class Readable(Protocol):
    """The connection."""

    peer: str

    @property
    def transport(self) -> asyncio.Transport | None: ...


class Reading:
    """For one connection, which is read as long as this does not pause it."""

    __slots__ = (
        "_connection",
        "_crowded_from",
        "_disk_patience",
        "_host",
        "_left_before",
        "_loop",
        "_recorded_bytes",
        "_recorded_turn",
        "_rest",
        "is_slow",
    )

    def __init__(self, host: LinkHost, connection: Readable) -> None:
        self._host = host
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self._crowded_from: Nanos = NEVER
        self._left_before = 0
        """How much had left for other neighbours then."""
        self._recorded_bytes = 0
        self._recorded_turn = 0
        """Records caused by this neighbour that may not be on disk yet: their bytes, and the last turn."""
        self._disk_patience: asyncio.TimerHandle | None = None
        """Set while no more is read because of that."""
        self.is_slow = False
        """Whether no more than READ_SLOWLY_BYTES are to be read at once."""

    def after_read(self, size_bytes: int) -> None:
        """So much was read. Call it before it is handled: `recorded` may pause reading for longer."""
        if size_bytes >= MUCH_BYTES or self.is_slow:
            transport = self._connection.transport
            if transport is not None:
                transport.pause_reading()
                self._loop.call_soon(self._read_or_rest)

    def recorded(self, size_bytes: int, turn: int) -> None:
        """What came made records of so many bytes, which are written at the end of the turn."""
        self._recorded_bytes += size_bytes
        self._recorded_turn = turn
        if self._recorded_bytes <= RECORDED_BYTES_MAX or self._disk_patience is not None:
            return
        self.is_slow = True
        transport = self._connection.transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            self._disk_patience = self._loop.call_later(CALM_PATIENCE_NS / SECOND, self._end_disk_pause)

    def written(self, turn: int) -> None:
        """All turns up to this one are on disk."""
        if turn < self._recorded_turn or not self._recorded_bytes:
            return
        self.is_slow = self._recorded_bytes > RECORDED_BYTES_MAX // 2
        self._recorded_bytes = 0
        if self._disk_patience is not None:
            self._disk_patience.cancel()
            self._end_disk_pause()

    def others_have_room(self) -> None:
        """Something has left for a neighbour: perhaps there is room again for what comes from this one."""
        if self._rest is not None:
            self._rest.cancel()
            self._read_or_rest()

    def end(self) -> None:
        for timer in (self._rest, self._disk_patience):
            if timer is not None:
                timer.cancel()

    def _end_disk_pause(self) -> None:
        self._disk_patience = None
        self._recorded_bytes = 0
        if self._rest is None:
            self._read_or_rest()

    def _read_or_rest(self) -> None:
        """Read on, unless what came has to wait for another neighbour, and has not for long."""
        self._rest = None
        transport, peer = self._connection.transport, self._connection.peer
        if transport is None or transport.is_closing() or self._disk_patience is not None:
            return
        if not self._host.is_crowded(peer):
            self._crowded_from = NEVER
        else:
            now, patience_ns = self._host.now(), self._host.patience_ns(peer)
            is_calm = patience_ns >= NEVER
            left_bytes = self._host.left_bytes(peer)
            is_moving = is_calm and left_bytes - self._left_before >= MOVING_BYTES
            if self._crowded_from == NEVER or (is_moving and now - self._crowded_from >= CALM_PATIENCE_NS // 2):
                self._crowded_from, self._left_before = now, left_bytes
            patience_ns = CALM_PATIENCE_NS if is_calm else min(patience_ns, PATIENCE_NS)
            if now - self._crowded_from < patience_ns:
                self._rest = self._loop.call_later(LOOK_AGAIN_S, self._read_or_rest)
                return
        transport.resume_reading()
