"""What rules would do to messages, in virtual time: for `overlane mediate --dry-run`.

Functions are called at once, in this process, without their time limit.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from overlane.core.units import Nanos
from overlane.mediation.draft import Draft
from overlane.mediation.functions import FunctionMessage, apply, find_function
from overlane.mediation.mediation import (
    Called,
    Dropped,
    Failed,
    Held,
    Key,
    Mediation,
    Memory,
    Passed,
    Resume,
    RuleStage,
)
from overlane.mediation.rule import RuleFailed


class Step(NamedTuple):
    """What has become of a message. `result`: passed, dropped, held or failed."""

    number: int
    at_ns: Nanos
    result: str
    rule: str = ""
    told: str = ""
    draft: Draft | None = None
    """As it passes."""


class _Held(NamedTuple):
    number: int
    until_ns: Nanos
    draft: Draft


class DryRun:
    def __init__(self, mediation: Mediation) -> None:
        self._mediation = mediation
        self._memory = Memory()
        self._held: dict[Key, _Held] = {}

    def run(self, messages: Iterable[tuple[Nanos, Draft]]) -> Iterator[Step]:
        """Messages with the times at which they are published, in that order."""
        for number, (at_ns, draft) in enumerate(messages, 1):
            yield from self._release(at_ns)
            yield from self._steps(number, draft, at_ns, None)
        yield from self._release(None)

    def _release(self, until_ns: Nanos | None) -> Iterator[Step]:
        while self._held:
            key = min(self._held, key=lambda one: self._held[one].until_ns)
            held = self._held[key]
            if until_ns is not None and held.until_ns > until_ns:
                return
            del self._held[key]
            self._memory.windows[key] = held.until_ns + self._mediation.window_ns(key[0])
            yield from self._steps(held.number, held.draft, held.until_ns, Resume(key[0], RuleStage.HELD))

    def _steps(self, number: int, draft: Draft, now: Nanos, resume: Resume | None) -> Iterator[Step]:
        result = self._mediation.run(draft, self._memory, now, resume)
        self._memory.apply(result.changes)
        match result:
            case Passed(changed):
                yield Step(number, now, "passed", draft=changed)
            case Dropped(rule):
                yield Step(number, now, "dropped", rule)
            case Failed(rule, reason):
                yield Step(number, now, "failed", rule, reason)
            case Held(changed, rule, until_ns):
                before = self._held.get((rule, changed.topic))
                if before is not None:
                    yield Step(before.number, now, "dropped", rule, f"message {number} takes its place")
                self._held[rule, changed.topic] = _Held(number, until_ns, changed)
                yield Step(number, now, "held", rule)
            case Called(changed, rule, function):
                yield from self._called(number, changed, rule, function, now)
            case _:
                assert_never(result)

    def _called(self, number: int, draft: Draft, rule: str, name: str, now: Nanos) -> Iterator[Step]:
        given = FunctionMessage(
            topic=draft.topic,
            payload=draft.payload,
            qos=draft.qos,
            retain=draft.retain,
            content_type=draft.content_type,
            properties=list(draft.properties),
        )
        try:
            returned = apply(find_function(name), given)
        except RuleFailed as failed:
            yield Step(number, now, "failed", rule, str(failed))
            return
        if returned is None:
            yield Step(number, now, "dropped", rule, f"by {name}")
            return
        pairs = tuple((one, value) for one, value in returned.properties)
        new = Draft(
            returned.topic, returned.payload, draft.qos, draft.retain, returned.content_type, draft.is_text, pairs
        )
        yield from self._steps(number, new, now, Resume(rule, RuleStage.CALLED))
