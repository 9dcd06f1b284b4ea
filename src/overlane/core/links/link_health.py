"""Link health: the state of one link, estimated from probes and their answers.

There are two kinds of probes. Pings are sent in cycles, one per interval; an unanswered ping is repeated a few times
within its cycle, so that loss is not mistaken for failure. Parcels with hop acknowledgements are probes at no cost:
they measure round-trip time and loss at the rate of the data, and make pings unnecessary.

  round trip, jitter  moving averages (1/8, 1/4). A sample far below the band is a step, since nothing arrives early by
                      accident. After one far above it the link is probed; a second one is a step
  loss                moving average (1/16) over probes. Lost is what is missing when a later probe was answered
  suspicion           phi accrual: each probe that is overdue by this link's own distribution of round trips adds how
                      improbable its silence is, given the usual loss. At PHI_SUSPECT the link is SUSPECT: routes may
                      move, which can be undone. An answer ends it
  failure             three ping cycles in a row without any answer, or a broken connection: FAILED
  own lag             a broker that checks its links late has not read the answers meanwhile: pings and cycles get as
                      much more time as it was late, which decays when it is on time again
  recovery            SUSPECT for a hold time that doubles with each relapse, so that a flapping link does not make
                      routes flap. The first suspicion in a while has no hold time: it may be a mere delay
  memory              after trouble a link counts as risky for a while, longer if trouble came back, so that redundancy
                      outlasts it
  another path        a change of the path below the link is no trouble: the round trip is that of the new path at once

Integer arithmetic only: the same history gives the same result on any machine.
"""

from enum import IntEnum

from overlane.core.units import MS, NEVER, SECOND, Nanos

MISSED_CYCLES_MAX = 3
ATTEMPTS_PER_CYCLE = 4
ATTESTED_PART = 4
"""A link with a hop acknowledgement within this part of a cycle is not pinged."""
ASK_GAP: Nanos = 50 * MS
"""Least time between a ping and an extra one that is sent to check a changed link."""
PHI_SUSPECT = 5.9
LAG_FADES = 3
"""By one in two to this power each time that the broker looks at a link."""
TROUBLE_LOSS = 80_000
"""Loss, in millionths, from which a link counts as in trouble."""

HOLD_MIN: Nanos = 500 * MS
HOLD_MAX: Nanos = 60 * SECOND
MEMORY_MIN: Nanos = 10 * SECOND
MEMORY_MAX: Nanos = 160 * SECOND
SWING_REMEMBERED: Nanos = 60 * SECOND
BLIP_MAX: Nanos = SECOND
"""A rise that ends this soon was a busy host, not a change of the link."""
RELAPSE_WITHIN: Nanos = 60 * SECOND

STANDBY_MARGIN: Nanos = 50 * MS
"""How much longer than the round trip of another path the link may be silent before it is suspected."""
INITIAL_ROUND_TRIP: Nanos = 100 * MS
MARGIN_MIN: Nanos = 2 * MS
TOKENS_KEPT = 16

# What one silent probe adds to phi at most, by the usual loss of the link: -log10(loss), in steps.
_SURPRISE = ((500_000, 0.3), (300_000, 0.52), (200_000, 0.7), (100_000, 1.0), (50_000, 1.3), (20_000, 1.7))
_SURPRISE_CLEAN = 2.0


class LinkState(IntEnum):
    UP = 0
    SUSPECT = 1
    FAILED = 2


class LinkHealth:
    def __init__(self, ping_interval_ns: Nanos) -> None:
        self.state = LinkState.FAILED
        self.rtt_ns: Nanos = INITIAL_ROUND_TRIP
        self.jitter_ns: Nanos = INITIAL_ROUND_TRIP // 2
        self.loss_millionths = 0
        self.risky_until: Nanos = -NEVER
        self.swing_ns: Nanos = 0
        """By how much the latency rose at once, until when that is remembered."""
        self.swings_until: Nanos = -NEVER
        self._rise: tuple[Nanos, Nanos, Nanos, Nanos] = -NEVER, 0, 0, -NEVER
        """The last one: when it was, the round trip before it, and what was remembered then."""
        self._before: tuple[Nanos, Nanos, Nanos, Nanos] | None = None
        self._ping_interval_ns = ping_interval_ns
        self.measured = False
        self._step = 0
        self._phi = 0.0
        self._silent_since: Nanos = -NEVER
        """When phi began to grow."""
        self.standby_ns: Nanos = 0
        """The round trip of another path that the link can take; 0: there is none."""
        self._lag_ns: Nanos = 0
        """How late this broker itself lately was in checking the link."""
        # Pings
        self._token = 0
        self._waiting: dict[int, tuple[Nanos, Nanos]] = {}
        """When it was sent, and its timeout: when a link becomes faster, later pings overtake earlier ones."""
        self._overdue: dict[int, Nanos] = {}
        self._attempts = 0
        self._answers = 0
        self._is_asked = False
        """Whether this cycle has a ping, so that no answer at all means something."""
        self._attested_ns: Nanos = -NEVER
        """When a hop acknowledgement last came."""
        self._missed_cycles = 0
        self._next_cycle: Nanos = NEVER
        self._next_ping: Nanos = NEVER
        self._pinged_at: Nanos = -NEVER
        # Damping
        self._hold_ns: Nanos = 0
        self._memory_ns: Nanos = MEMORY_MIN
        self._trouble_at: Nanos = -NEVER
        self._on_probation = False
        self._good_since: Nanos = NEVER

    # State

    @property
    def latency_ns(self) -> Nanos:
        return self.rtt_ns >> 1

    @property
    def patience_ns(self) -> Nanos:
        """How long after sending a probe its answer is overdue."""
        return self.rtt_ns + max(4 * self.jitter_ns, MARGIN_MIN + (self.rtt_ns >> 4))

    @property
    def dead(self) -> bool:
        """Three cycles without an answer: the connection may stand, but nothing passes."""
        return self._missed_cycles >= MISSED_CYCLES_MAX

    def next_deadline(self) -> Nanos:
        when = min(self._next_ping, self._next_cycle)
        for waiting in self._waiting.values():  # oldest first
            when = min(when, self._due(waiting))
            break
        if self.state is LinkState.SUSPECT and self._good_since != NEVER:
            when = min(when, self._good_since + self._hold_ns)
        return when

    # Events

    def lagged(self, lag_ns: Nanos) -> None:
        """This broker checks the link late: answers get as much more time."""
        self._lag_ns = max(lag_ns, self._lag_ns - (self._lag_ns >> LAG_FADES))

    def connected(self, now: Nanos) -> None:
        """A new connection: usable at once the first time, on probation after a failure."""
        self._waiting.clear()
        self._overdue.clear()
        self._missed_cycles = 0
        self._answers = 1
        self._attested_ns = -NEVER
        self._phi = 0.0
        self._next_cycle = self._next_ping = now
        self._good_since = NEVER
        self._on_probation = self._trouble_at != -NEVER
        self.state = LinkState.SUSPECT if self._on_probation else LinkState.UP

    def broken(self, now: Nanos) -> None:
        if self.state is LinkState.UP or self._on_probation:
            self._trouble_begins(now)
        self._on_probation = False
        if self.state is not LinkState.FAILED:
            self._before = None
            self.risky_until = max(self.risky_until, now + self._memory_ns)
            self._hold_ns = max(self._hold_ns, HOLD_MIN)
            self.state = LinkState.FAILED
        self._waiting.clear()
        self._next_ping = self._next_cycle = NEVER

    def answered(self, token: int, now: Nanos) -> None:
        """A pong. A late one still measures the round trip; earlier pings that are overdue now count as lost."""
        waiting = self._waiting.pop(token, None)
        late = waiting is None
        sent_at = self._overdue.pop(token, None) if waiting is None else waiting[0]
        if sent_at is None:
            return
        for earlier in [one for one, at in self._overdue.items() if at < sent_at]:
            del self._overdue[earlier]
            self.lost(now)
        self.came(1)
        self.observed(now - sent_at, now, late)

    def came(self, probes: int) -> None:
        """So many probes arrived."""
        for _ in range(min(probes, 64)):
            self.loss_millionths -= self.loss_millionths >> 4

    def lost(self, now: Nanos) -> None:
        """A probe was lost."""
        self.loss_millionths += (1_000_000 - self.loss_millionths) >> 4
        if self.loss_millionths >= TROUBLE_LOSS:
            self.risky_until = max(self.risky_until, now + self._memory_ns)

    def observed(self, rtt_ns: Nanos, now: Nanos, late: bool = False) -> None:
        """A probe was answered after this time. An overdue one that still comes was not lost: the link is slower."""
        if self.state is LinkState.FAILED:
            return
        self._phi = 0.0
        self._missed_cycles = 0
        self._answers += 1
        if not self.measured:  # slower than the first guess is no rise
            self.measured = True
            self.rtt_ns, self.jitter_ns = rtt_ns, rtt_ns >> 3
            if late:
                self._undo_suspicion()
        elif late and rtt_ns > self.rtt_ns:
            self._jump(rtt_ns, now)
            self._undo_suspicion()
        else:
            self._average(rtt_ns, now)
        if self._good_since == NEVER:
            self._good_since = now
        self._maybe_recover(now)

    def answers(self, now: Nanos) -> None:
        """A probe was answered that measures nothing, since it was sent over two paths."""
        if self.state is LinkState.FAILED:
            return
        self._phi = 0.0
        self._missed_cycles = 0
        self._answers += 1
        if self._good_since == NEVER:
            self._good_since = now
        self._maybe_recover(now)

    def path_changed(self, rtt_ns: Nanos, now: Nanos) -> None:
        """The link takes another path. Silence of the old one says nothing about it, and neither do answers to pings
        that may have taken either: it is pinged anew."""
        if self.state is LinkState.FAILED:
            return
        self._waiting.clear()
        self._overdue.clear()
        self._phi = 0.0
        self._missed_cycles = 0
        self._undo_suspicion()
        if self.measured:
            self.rtt_ns, self._step = rtt_ns, 0
        self._attempts = ATTEMPTS_PER_CYCLE
        self._next_ping = now

    def attested(self, now: Nanos) -> None:
        """The answer was a hop acknowledgement."""
        self._attested_ns = now

    def silent(self, now: Nanos) -> None:
        """A hop acknowledgement is overdue: probe at once by a ping, too."""
        self._silence(now)
        if self._attempts > 0:
            self._next_ping = min(self._next_ping, now)

    def ask(self, at: Nanos) -> None:
        """The link may be other than believed: ping it then, but keep a ping of this cycle for silence."""
        if self._attempts > 1 and at >= self._pinged_at + ASK_GAP and self.state is not LinkState.FAILED:
            self._next_ping = min(self._next_ping, at)

    def tick(self, now: Nanos, judges: bool = True) -> int | None:
        """Whatever is due by now; silence only where it is certain. Returns the token of a ping to send."""
        if self.state is LinkState.FAILED:
            return None
        while judges and self._waiting:
            token, waiting = next(iter(self._waiting.items()))
            if now < self._due(waiting):
                break
            del self._waiting[token]
            self._overdue[token] = waiting[0]
            if len(self._overdue) > TOKENS_KEPT:
                del self._overdue[next(iter(self._overdue))]
            self._silence(now)
            if self._attempts > 0:
                self._next_ping = now
        if judges and now >= self._next_cycle:
            self._begin_cycle(now)
        self._maybe_recover(now)
        if now < self._next_ping or self.dead:
            return None
        self._is_asked = True
        self._attempts -= 1
        self._next_ping = NEVER
        self._pinged_at = now
        self._token = (self._token + 1) & 0xFFFFFFFF
        self._waiting[self._token] = now, self.patience_ns
        return self._token

    def _due(self, waiting: tuple[Nanos, Nanos]) -> Nanos:
        sent_at, patience_ns = waiting
        return sent_at + max(patience_ns, self.patience_ns) + self._lag_ns

    # Transitions

    def _begin_cycle(self, now: Nanos) -> None:
        if self._answers == 0 and self._is_asked:
            self._missed_cycles += 1
        self._answers = 0
        self._is_asked = False
        self._attempts = ATTEMPTS_PER_CYCLE
        # A cycle leaves time for an answer, also on a link slower than the interval.
        self._next_cycle = now + max(self._ping_interval_ns, self.patience_ns) + self._lag_ns
        is_attested = now - self._attested_ns <= self._ping_interval_ns // ATTESTED_PART
        self._next_ping = NEVER if is_attested else now

    def _silence(self, now: Nanos) -> None:
        if not self._phi:
            self._silent_since = now
        self._phi += next((cap for loss, cap in _SURPRISE if self.loss_millionths >= loss), _SURPRISE_CLEAN)
        self._good_since = NEVER
        if self._phi >= PHI_SUSPECT and self.state is LinkState.UP and not self._may_change_path(now):
            self._trouble_begins(now)
            self.state = LinkState.SUSPECT

    def _may_change_path(self, now: Nanos) -> bool:
        """Whether the link may be about to take another path: that is given the time of its round trip, and for this
        end to notice."""
        return bool(self.standby_ns) and now < self._silent_since + self.standby_ns + STANDBY_MARGIN

    def _maybe_recover(self, now: Nanos) -> None:
        if self.state is LinkState.SUSPECT and self._good_since != NEVER and now >= self._good_since + self._hold_ns:
            self.state = LinkState.UP
            self._on_probation = False

    def _trouble_begins(self, now: Nanos) -> None:
        self._before = self._hold_ns, self._memory_ns, self._trouble_at, self.risky_until
        relapse = now - self._trouble_at < RELAPSE_WITHIN + self._hold_ns
        self._hold_ns = min(HOLD_MAX, max(HOLD_MIN, 2 * self._hold_ns)) if relapse else 0
        self._memory_ns = min(MEMORY_MAX, 2 * self._memory_ns) if relapse else MEMORY_MIN
        self._trouble_at = now
        self._good_since = NEVER
        self.risky_until = now + self._memory_ns

    def _undo_suspicion(self) -> None:
        """It was slow, not silent: that is no relapse and is not remembered."""
        if self.state is LinkState.SUSPECT and self._before is not None:
            self._hold_ns, self._memory_ns, self._trouble_at, self.risky_until = self._before
            self._before = None
            self.state = LinkState.UP

    def _jump(self, rtt_ns: Nanos, now: Nanos) -> None:
        """The round trip has changed in a step."""
        rise_ns = (rtt_ns - self.rtt_ns) >> 1
        rose_at, rtt_before_ns, swing_before_ns, until_before = self._rise
        if rise_ns > 0:
            if now - rose_at > BLIP_MAX:
                self._rise = now, self.rtt_ns, self.swing_ns, self.swings_until
            self.swing_ns = max(rise_ns, self.swing_ns if now < self.swings_until else 0)
            self.swings_until = now + SWING_REMEMBERED
        elif now - rose_at <= BLIP_MAX and rtt_ns < (self.rtt_ns + rtt_before_ns) >> 1:
            self.swing_ns, self.swings_until = swing_before_ns, until_before
        self.rtt_ns, self._step = rtt_ns, 0

    def _average(self, rtt_ns: Nanos, now: Nanos) -> None:
        away = rtt_ns - self.rtt_ns
        if abs(away) > max(4 * self.jitter_ns, MARGIN_MIN):
            self._step = max(self._step, 0) + 1 if away > 0 else min(self._step, 0) - 1
            if self._step < 0 or self._step >= 2:
                self._jump(rtt_ns, now)
            else:
                self.ask(now)
            return
        self._step = 0
        self.rtt_ns += away >> 3
        self.jitter_ns += (abs(away) - self.jitter_ns) >> 2
