"""One direction of a link: when, in which order and whether at all a frame arrives.

Frames on the DATA lane of a datagram link are independent: lost with the link's probability, delayed by its latency
plus or minus its jitter, and able to overtake each other. Frames on the CONTROL lane, and all frames of a stream link,
behave as with TCP: they arrive, in order. A loss costs the time of a retransmission, soon for the first one (by
duplicate acknowledgements) and with a doubling timeout after that, and delays everything behind it. A frame that does
not arrive within five seconds ends the connection, as TCP_USER_TIMEOUT does.

A cut line drops datagrams silently. Its stream data stays with the sender's kernel, which retransmits with growing
pauses, so it arrives some time after healing, if the connection still exists.

A line with a rate sends one frame after the other. Between the broker and the wire is a send buffer, which is small on
purpose: the order of its content is fixed, while frames in the broker's queue can be overtaken by more urgent ones.
"""

from collections import deque
from collections.abc import Callable
from random import Random

from overlane.core.events import Lane
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire.frame_codec import older
from overlane.sim.engine import Engine

Frame = tuple[Lane, bytes]

SEND_BUFFER_BYTES_MAX = 16 * 1024
SEND_BUFFER_BYTES_MIN = 1_500
SEND_BUFFER_NS: Nanos = 10 * MS
"""What a send buffer holds: what leaves in this time, within the limits above."""

RETRANSMISSION_MIN_NS: Nanos = 200 * MS
STREAM_TIMEOUT_NS: Nanos = 5 * SECOND
"""How long a frame of a stream may go unacknowledged on a link that passes, before the connection is given up."""

REMEMBERED_NS: Nanos = 2 * SECOND
"""How long datagrams are remembered that another path may have to repeat."""

UNLIMITED = 1 << 40

_CONTROL = Lane.CONTROL


class Condition:
    """What one direction of a link is like now."""

    __slots__ = ("cut", "jitter_ns", "latency_ns", "loss", "rate_bps")

    def __init__(self, latency_ns: Nanos, jitter_ns: Nanos, loss: float, rate_bps: int | None) -> None:
        self.latency_ns = latency_ns
        self.jitter_ns = jitter_ns
        self.loss = loss
        self.rate_bps = rate_bps
        self.cut = False

    def passes(self) -> bool:
        return not self.cut and self.loss < 1.0

    def add(self, latency_ns: Nanos, jitter_ns: Nanos, loss: float, rate_bps: int | None) -> None:
        """Something more lies on the way."""
        self.latency_ns += latency_ns
        self.jitter_ns += jitter_ns
        if loss:
            self.loss = 1.0 - (1.0 - self.loss) * (1.0 - loss)
        if rate_bps is not None:
            self.rate_bps = rate_bps if self.rate_bps is None else min(self.rate_bps, rate_bps)

    def send_buffer_bytes(self) -> int:
        if self.rate_bps is None:
            return UNLIMITED
        in_time = self.rate_bps * SEND_BUFFER_NS // (8 * SECOND)
        return max(SEND_BUFFER_BYTES_MIN, min(SEND_BUFFER_BYTES_MAX, in_time))


class Line:
    """`deliver` gets the frames that arrive together; `give_up` is told when a stream has timed out."""

    __slots__ = (
        "_busy_until",
        "_condition",
        "_deliver",
        "_engine",
        "_epoch",
        "_flight",
        "_flight_epoch",
        "_give_up",
        "_is_open",
        "_is_stream",
        "_luck",
        "_path_epoch",
        "_sent_lately",
        "_stalled",
        "_stalled_since",
        "_stream_until",
        "sent_bytes",
    )

    def __init__(
        self,
        engine: Engine,
        condition: Condition,
        luck: Random,
        is_stream: bool,
        deliver: Callable[[list[Frame]], None],
        give_up: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._condition = condition
        self._luck = luck
        self._is_stream = is_stream
        self._deliver = deliver
        self._give_up = give_up
        self._is_open = False
        self._epoch = 0  # grows when the receiver's end goes down: what was under way then arrives nowhere
        self._flight: deque[list[Frame]] = deque()  # of the stream, in order of arrival
        self._flight_epoch = 0  # grows when the stream's flight is taken back
        self._stalled: list[Frame] = []  # of the stream, with the sender's kernel until the line passes again
        self._stalled_since: Nanos = 0
        self._path_epoch = 0  # grows when the path dies: datagrams under way on it are lost
        self._sent_lately: deque[tuple[Nanos, Frame]] | None = None  # datagrams, where there are other paths
        self._stream_until: Nanos = 0  # nothing of the stream arrives before this: it would overtake
        self._busy_until: Nanos = 0
        self.sent_bytes = 0

    @property
    def condition(self) -> Condition:
        """What the line is like now."""
        return self._condition

    # The connection's life

    def open(self) -> None:
        self.forget()
        self._is_open = True
        self._stream_until = self._busy_until = self._engine.now

    def shut(self) -> None:
        """The sender's end is gone. What is on its way arrives; what only a retransmission could save does not."""
        self._is_open = False
        self._stalled.clear()

    def forget(self) -> None:
        """The receiver's end is gone: nothing of what is under way arrives."""
        self._epoch += 1
        self._flight_epoch += 1
        self._flight.clear()
        self._stalled.clear()

    def remember(self) -> None:
        """There are other paths: datagrams that this one has swallowed are to be sent over them."""
        self._sent_lately = deque()

    def last_arrival(self) -> Nanos:
        """When the last of the stream's frames under way will be there, and so the end of the stream."""
        return max(self._engine.now + self._condition.latency_ns, self._stream_until)

    # Sending

    def room_bytes(self) -> int:
        """How much the send buffer can still take."""
        condition = self._condition
        if condition.rate_bps is None:
            return UNLIMITED
        return condition.send_buffer_bytes() - self.buffered_bytes()

    def buffered_bytes(self) -> int:
        """How much of what was sent has not left the send buffer yet."""
        rate_bps = self._condition.rate_bps
        if rate_bps is None:
            return 0
        return max(0, self._busy_until - self._engine.now) * rate_bps // (8 * SECOND)

    def half_empty_at(self) -> Nanos:
        """When the send buffer will be down to a half."""
        rate_bps = self._condition.rate_bps
        if rate_bps is None:
            return self._engine.now
        return self._busy_until - self._condition.send_buffer_bytes() // 2 * 8 * SECOND // rate_bps

    def send(self, frames: list[Frame]) -> None:
        condition = self._condition
        loss = condition.loss
        passes = condition.passes()
        luck = self._luck
        together: list[Frame] = []
        together_at: Nanos = -1
        stream: list[Frame] = []
        stream_at: Nanos = -1
        is_unlimited = condition.rate_bps is None
        now = self._engine.now
        for frame in frames:
            self.sent_bytes += len(frame[1])
            departure = now if is_unlimited else self._departure(len(frame[1]))
            if self._is_stream or frame[0] is _CONTROL:
                if self._stalled or not passes:
                    self._stall(frame)
                    continue
                arrival = self._in_order(departure)
                if arrival == NEVER:
                    self._stall(frame)
                    self._engine.at(departure + STREAM_TIMEOUT_NS, self._time_out, self._flight_epoch)
                elif arrival == stream_at:
                    stream.append(frame)
                else:
                    stream, stream_at = [frame], arrival
                    self._flight.append(stream)
                    self._engine.at(arrival, self._stream_arrives, self._flight_epoch)
            elif passes and not (loss and luck.random() < loss):
                arrival = departure + (self._delay() if condition.jitter_ns else condition.latency_ns)
                if arrival == together_at:
                    together.append(frame)
                else:
                    together, together_at = [frame], arrival
                    self._engine.at(arrival, self._datagrams_arrive, (self._epoch, self._path_epoch, together))
            if self._sent_lately is not None and not (self._is_stream or frame[0] is _CONTROL):
                self._sent_lately.append((now, frame))
                while self._sent_lately[0][0] < now - REMEMBERED_NS:
                    self._sent_lately.popleft()

    def _departure(self, size_bytes: int) -> Nanos:
        """When the last bit of the next frame is on the wire."""
        rate_bps = self._condition.rate_bps
        now = self._engine.now
        if rate_bps is None:
            return now
        start = self._busy_until if self._busy_until > now else now
        self._busy_until = start + size_bytes * 8 * SECOND // rate_bps
        return self._busy_until

    def _delay(self) -> Nanos:
        condition = self._condition
        if not condition.jitter_ns:
            return condition.latency_ns
        delay = condition.latency_ns + int((2.0 * self._luck.random() - 1.0) * condition.jitter_ns)
        return delay if delay > 0 else 0

    def _in_order(self, departure: Nanos) -> Nanos:
        """When the stream's next frame arrives; never, if its retransmissions would take too long."""
        arrival = departure + self._delay()
        if self._condition.loss:
            retransmissions_ns = self._retransmissions()
            if retransmissions_ns > STREAM_TIMEOUT_NS:
                return NEVER
            arrival += retransmissions_ns
        if arrival < self._stream_until:
            return self._stream_until
        self._stream_until = arrival
        return arrival

    def _retransmissions(self) -> Nanos:
        """What the losses of one frame of the stream cost in time."""
        round_trip = 2 * self._condition.latency_ns
        wait = max(round_trip * 3 // 2, round_trip + 10 * MS)
        timeout = max(RETRANSMISSION_MIN_NS, 2 * round_trip)
        delay = 0
        while delay <= STREAM_TIMEOUT_NS and self._luck.random() < self._condition.loss:
            delay += wait
            wait, timeout = timeout, timeout * 2
        return delay

    # A line that does not pass

    def stall(self) -> None:
        """The line passes nothing any more: take back what the stream has in flight, it will have to be sent again."""
        self._path_epoch += 1
        self._stalled_since = self._engine.now
        flight, self._flight = self._flight, deque()
        self._flight_epoch += 1
        self._stream_until = self._engine.now
        behind, self._stalled = self._stalled, []
        for frames in (*flight, behind):
            for frame in frames:
                self._stall(frame)

    def _stall(self, frame: Frame) -> None:
        if not self._is_open:
            return
        if not self._stalled:
            self._stalled_since = self._engine.now
        self._stalled.append(frame)

    def resume(self) -> None:
        """The line passes again; the sender's kernel finds out when it next tries."""
        if self._stalled:
            pause = max(RETRANSMISSION_MIN_NS, 4 * self._condition.latency_ns)
            attempt = self._stalled_since + pause
            while attempt < self._engine.now:
                pause *= 2
                attempt += pause
            self._engine.at(attempt, self._try_again)

    @property
    def is_swallowing(self) -> bool:
        """Whether something of the stream waits for the line to pass."""
        return bool(self._stalled)

    def send_again(self, rtt_ns: Nanos, stream_at: Nanos) -> None:
        """Another path is used instead of one that passes nothing: datagrams that were not acknowledged when it died,
        and those sent since, leave again at once, and the stream continues at the given time."""
        lately, self._sent_lately = self._sent_lately or deque(), deque()
        since = self._stalled_since - rtt_ns
        again = [
            (frame[0], older(frame[1], (self._engine.now - sent_ns) // US))
            for sent_ns, frame in lately
            if sent_ns >= since
        ]
        if again:
            self.send(again)
        self._engine.at(stream_at, self._try_again)

    def _try_again(self, _: None) -> None:
        if self._stalled and self._condition.passes():
            arrival = self._in_order(self._engine.now)
            if arrival == NEVER:
                self._engine.at(self._engine.now + STREAM_TIMEOUT_NS, self._time_out, self._flight_epoch)
                return
            self._flight.append(self._stalled)
            self._stalled = []
            self._engine.at(arrival, self._stream_arrives, self._flight_epoch)

    def _time_out(self, flight_epoch: int) -> None:
        if flight_epoch == self._flight_epoch and self._stalled and self._is_open:
            self._give_up()

    # Arriving

    def _stream_arrives(self, flight_epoch: int) -> None:
        if flight_epoch == self._flight_epoch:
            self._deliver(self._flight.popleft())

    def _datagrams_arrive(self, arrival: tuple[int, int, list[Frame]]) -> None:
        epoch, path_epoch, frames = arrival
        if (
            epoch == self._epoch
            and self._condition.passes()
            and (path_epoch == self._path_epoch or self._sent_lately is None)
        ):
            self._deliver(frames)
