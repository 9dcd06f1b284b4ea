"""A link between two brokers: how its connection opens, breaks and opens again.

The end with the lower name dials. A connection opens after one round trip if both brokers are up and the link passes
packets; then both ends are informed. If it fails, or an open one breaks, the dialling end tries again after a pause
that doubles from 200 ms to 5 s.

A connection breaks if one end closes it or crashes, or if data of an end is not delivered for seconds. The other end is
informed after the latency of the link, after everything that was sent before. A cut informs neither end: an end whose
peer has closed meanwhile keeps its connection until it closes it itself, until the link heals and its next frame is
answered by a reset, or until the peer dials again.

The two directions may differ. The conditions of the uplinks of both brokers are added in both directions. Where a
broker has several, each end chooses a path (`link_paths`). When that is dead, an end that knows it sends over another
one: at once what it sent in vain in datagrams, and the stream when its connection has moved, after two round trips.
"""

from functools import partial
from random import Random
from typing import Protocol

from overlane.core.units import MS, SECOND, Nanos
from overlane.network import Link as LinkSpec
from overlane.network.schema import Uplink
from overlane.sim import random_streams
from overlane.sim.engine import Engine
from overlane.sim.line import UNLIMITED, Condition, Frame, Line
from overlane.sim.link_paths import LinkPaths

REDIAL_MIN_NS: Nanos = 200 * MS
REDIAL_MAX_NS: Nanos = 5 * SECOND
HANDSHAKE_TIMEOUT_NS: Nanos = 1 * SECOND


class Station(Protocol):
    """What a link needs of a broker's driver."""

    @property
    def name(self) -> str: ...
    @property
    def is_alive(self) -> bool: ...
    def link_up(self, peer: str) -> None: ...
    def link_down(self, peer: str) -> None: ...
    def path_changed(self, peer: str, rtt_ns: Nanos) -> None: ...
    def standby_changed(self, peer: str, rtt_ns: Nanos) -> None: ...
    def receive(self, peer: str, frames: list[Frame]) -> None: ...
    def pull(self, peer: str, bytes_max: int, in_buffer: int) -> list[Frame]: ...
    def room_for(self, peer: str) -> None: ...


class End:
    """One broker's end of a link, with the line that leads away from it."""

    __slots__ = ("_engine", "_wakes", "is_up", "line", "news_waits", "peer", "station")

    def __init__(self, engine: Engine, station: Station, peer: str) -> None:
        self._engine = engine
        self.station = station
        self.peer = peer
        self.line: Line
        self.is_up = False
        self.news_waits = False  # the peer is gone, but the link does not pass the news
        self._wakes = False

    def drain(self) -> None:
        """Send what the broker has ready, as far as the send buffer takes it, and come back for the rest."""
        if not self.is_up:
            return
        line = self.line
        room = line.room_bytes()
        while room > 0:
            frames = self.station.pull(self.peer, room, 0 if room == UNLIMITED else line.buffered_bytes())
            if not frames:
                return
            line.send(frames)
            if room == UNLIMITED:
                return
            room = line.room_bytes()
        if not self._wakes:
            self._wakes = True
            self._engine.at(self.line.half_empty_at(), self._wake)

    def _wake(self, _: None) -> None:
        self._wakes = False
        if self.is_up:
            self.station.room_for(self.peer)

    def arrive(self, frames: list[Frame]) -> None:
        if self.is_up:
            self.station.receive(self.peer, frames)


class Link:
    __slots__ = (
        "_attempt",
        "_dials",
        "_engine",
        "_is_cut",
        "_loses",
        "_luck",
        "_redial_ns",
        "_slowed_ns",
        "_spec",
        "_unwanted_by",
        "conditions",
        "ends",
        "paths",
    )

    def __init__(self, engine: Engine, spec: LinkSpec, one: Station, other: Station, seed: int) -> None:
        low, high = sorted((one, other), key=lambda station: station.name)
        self._engine = engine
        self._spec = spec
        self._slowed_ns: Nanos | None = None  # what was done to it since it was last healed
        self._loses: float | None = None
        self._is_cut = False
        self._unwanted_by: set[str] = set()  # ends whose configuration does not have it
        self.paths: LinkPaths | None = None  # where one of its brokers has uplinks
        self.ends = End(engine, low, high.name), End(engine, high, low.name)
        self.conditions = tuple(Condition(0, 0, 0.0, None) for _ in self.ends)  # of what each end sends
        self._set_conditions()
        for sender, receiver, condition in zip(self.ends, self.ends[::-1], self.conditions, strict=True):
            line_luck = random_streams.stream(seed, "line", sender.station.name, receiver.station.name)
            sender.line = Line(
                engine,
                condition,
                line_luck,
                spec.transport == "stream",
                receiver.arrive,
                partial(self._time_out, sender),
            )
        self._luck: Random = random_streams.stream(seed, "dial", low.name, high.name)
        self._redial_ns = REDIAL_MIN_NS
        self._dials = False
        self._attempt = 0  # grows when the dialler loses interest in its attempts so far

    def end_of(self, name: str) -> End:
        low, high = self.ends
        return low if low.station.name == name else high

    def latency_from(self, name: str) -> Nanos:
        """Of what this end sends, now."""
        return self.conditions[0 if self.ends[0].station.name == name else 1].latency_ns

    def _own_round_trip_ns(self) -> Nanos:
        """Without uplinks."""
        if self._slowed_ns is not None:
            return 2 * self._slowed_ns
        return sum(self._spec.from_end(end.station.name).latency_ns for end in self.ends)

    def _round_trip_ns(self) -> Nanos:
        return sum(condition.latency_ns for condition in self.conditions)

    def _passes(self) -> bool:
        return all(condition.passes() for condition in self.conditions)

    # The connection's life

    def dial(self) -> None:
        """Have the dialler try, if it is there and does not try already."""
        dialler, _ = self.ends
        if dialler.station.is_alive and not dialler.is_up and not self._dials:
            self._dials = True
            self._attempt += 1
            self._try(self._attempt)

    def dial_anew(self) -> None:
        """Have the dialler try at once, without the pause after earlier attempts: it has just been asked to."""
        self._attempt += 1
        self._dials = False
        self._redial_ns = REDIAL_MIN_NS
        self.dial()

    def _try(self, attempt: int) -> None:
        if attempt == self._attempt:
            answer_ns = self._round_trip_ns()
            loss = max(condition.loss for condition in self.conditions)
            if loss and self._luck.random() < loss:
                answer_ns += HANDSHAKE_TIMEOUT_NS
            self._engine.at(self._engine.now + answer_ns, self._answer, attempt)

    def _answer(self, attempt: int) -> None:
        if attempt != self._attempt:
            return
        if self._lets_open() and self.ends[1].station.is_alive:
            self._dials = False
            self._redial_ns = REDIAL_MIN_NS
            self._open()
        else:
            self._engine.at(self._engine.now + self._pause(), self._try, attempt)

    def _pause(self) -> Nanos:
        pause = int(self._redial_ns * (0.75 + 0.5 * self._luck.random()))
        self._redial_ns = min(2 * self._redial_ns, REDIAL_MAX_NS)
        return pause

    def _lets_open(self) -> bool:
        """Whether a new connection finds its way, whatever became of the old one."""
        is_connected = (self.paths is None or self.paths.pass_at_all) and not self._unwanted_by
        return is_connected and not self._is_cut and all(condition.loss < 1.0 for condition in self.conditions)

    def _open(self) -> None:
        if self.paths is not None:
            self.paths.opened()
        self._set_conditions()
        for end in self.ends:
            if end.is_up:  # it had not noticed that the old connection was gone
                self._take_down(end)
        for end in self.ends:
            end.is_up = True
            end.news_waits = False
            end.line.open()
        for end in self.ends:
            if end.is_up:
                end.station.link_up(end.peer)
                if self.paths is not None and end.is_up:
                    self._stands_by(end.station.name, self.paths.standby_ns(end.station.name))

    def close(self, name: str) -> None:
        """The broker of this name closes the connection, or crashes."""
        end = self.end_of(name)
        if not end.is_up:
            return
        tells_at = end.line.last_arrival()
        self._put_down(end)
        other = self.end_of(end.peer)
        if other.is_up:
            self._engine.at(tells_at, self._news_arrives, other)

    def _time_out(self, end: End) -> None:
        """What this end sent could not be got across."""
        self.close(end.station.name)
        if end.station.is_alive:
            end.station.link_down(end.peer)

    def _news_arrives(self, end: End) -> None:
        """News that the peer is gone reaches this end, unless the link does not pass it."""
        peer_end = self.end_of(end.peer)
        if not end.is_up or peer_end.is_up:
            return
        if self._passes():
            self._take_down(end)
        else:
            end.news_waits = True

    def _take_down(self, end: End) -> None:
        self._put_down(end)
        if end.station.is_alive:
            end.station.link_down(end.peer)

    def _put_down(self, end: End) -> None:
        end.is_up = False
        end.news_waits = False
        end.line.shut()
        self.end_of(end.peer).line.forget()
        dialler, _ = self.ends
        if end is dialler and end.station.is_alive and not self._dials:
            self._dials = True
            self._attempt += 1
            self._engine.at(self._engine.now + self._pause(), self._try, self._attempt)

    def hang_up(self, name: str) -> None:
        """The broker of this name stopped: its connection breaks, and if it was the dialler, nobody dials."""
        self.close(name)
        if self.ends[0].station.name == name:
            self._dials = False
            self._attempt += 1
            self._redial_ns = REDIAL_MIN_NS

    def configure(self, name: str, is_wanted: bool) -> None:
        """Whether the broker of this name has the link in its configuration: no connection opens unless both have."""
        if is_wanted:
            self._unwanted_by.discard(name)
            self.dial()
        else:
            self._unwanted_by.add(name)

    # What happens to the link

    def slow(self, latency_ns: Nanos) -> None:
        self._slowed_ns = latency_ns
        self._change()

    def lose(self, loss: float) -> None:
        self._loses = loss
        self._change()

    def cut(self) -> None:
        self._is_cut = True
        self._change()

    def heal(self) -> None:
        """Restore the values of the file."""
        self._slowed_ns = self._loses = None
        self._is_cut = False
        self._change()

    def set_uplinks(self, name: str, uplinks: tuple[Uplink, ...]) -> None:
        """The broker of this name is connected in these ways."""
        if self.paths is None:
            low, high = self.ends
            names = low.station.name, high.station.name
            self.paths = LinkPaths(self._engine, names, self._own_round_trip_ns, self._switched, self._stands_by)
            for end in self.ends:
                end.line.remember()
        self.paths.set_uplinks(name, uplinks)
        self._change()

    def plug(self, name: str, uplink: str, is_in: bool) -> None:
        """An uplink of the broker of this name is plugged in or unplugged."""
        if self.paths is not None:
            self.paths.plug(name, uplink, is_in)
            self._change()
            self.paths.notice(name)

    def _stands_by(self, name: str, rtt_ns: Nanos) -> None:
        end = self.end_of(name)
        if end.is_up and end.station.is_alive:
            end.station.standby_changed(end.peer, rtt_ns)

    def _switched(self, name: str) -> None:
        """The end of this name uses another path."""
        end = self.end_of(name)
        passed = end.line.condition.passes()
        self._change()
        if self.paths is None or not end.is_up or not end.line.condition.passes():
            return
        rtt_ns = self.paths.round_trip_ns(self.paths.used_by(name))
        if end.station.is_alive:
            end.station.path_changed(end.peer, rtt_ns)
        if not passed or end.line.is_swallowing:
            end.line.send_again(rtt_ns, self._engine.now + 2 * rtt_ns)

    def _change(self) -> None:
        passed = [condition.passes() for condition in self.conditions]
        self._set_conditions()
        self._passes_or_not(passed)

    def _set_conditions(self) -> None:
        for end, condition in zip(self.ends, self.conditions, strict=True):
            spec = self._spec.from_end(end.station.name)
            condition.latency_ns = spec.latency_ns if self._slowed_ns is None else self._slowed_ns
            condition.jitter_ns = spec.jitter_ns
            condition.loss = spec.loss if self._loses is None else self._loses
            condition.rate_bps = spec.rate_bps
            condition.cut = self._is_cut
            if self.paths is not None:
                pair = self.paths.used_by(end.station.name)
                condition.cut |= not self.paths.passes(pair)
                for uplink in pair:
                    condition.add(uplink.latency_ns, uplink.jitter_ns, uplink.loss, uplink.rate_bps)

    def _passes_or_not(self, passed: list[bool]) -> None:
        """The link has changed; `passed` is whether each direction passed anything before."""
        is_back = self._passes() and not all(passed)
        for end, condition, before in zip(self.ends, self.conditions, passed, strict=True):
            if before and not condition.passes():
                end.line.stall()
            elif is_back:
                if not before:
                    end.line.resume()
                if end.news_waits:
                    end.news_waits = False
                    self._engine.at(self._engine.now + self._round_trip_ns(), self._news_arrives, end)
