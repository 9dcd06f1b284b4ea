"""All rules of a broker, in the order of the file, and what they remember of topics.

A message goes through the rules one by one; each sees what those before it have made of it. The first that drops it,
holds it back, wants a function called or fails ends that, and says so by its result. What rules remember (the last
value that passed, until when a topic has to wait) changes only when the caller applies the changes of a result: a
message that could not be accepted for another reason comes again, and must find everything as it was.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, TypeAlias

from overlane.core.topics import FilterTrie
from overlane.core.units import Nanos
from overlane.mediation.actions import Actions
from overlane.mediation.draft import Draft
from overlane.mediation.rule import MediationRule, RuleFailed

TOPICS_REMEMBERED_MAX = 100_000
"""Topics of one rule that something is remembered of; the oldest is forgotten first, and begins anew."""
TOPICS_LOOKED_UP_MAX = 10_000

Key: TypeAlias = tuple[str, str]
"""A rule and a topic."""


class Changes(NamedTuple):
    values: tuple[tuple[Key, float], ...] = ()
    windows: tuple[tuple[Key, Nanos], ...] = ()


class RuleStage(Enum):
    """Where a message goes on that had to wait for a rule."""

    HELD = "held"
    CALLED = "called"


class Resume(NamedTuple):
    rule: str
    stage: RuleStage


class Passed(NamedTuple):
    draft: Draft
    changes: Changes = Changes()


class Dropped(NamedTuple):
    rule: str
    changes: Changes = Changes()


class Held(NamedTuple):
    """It is the latest of its topic: it goes on at a time, unless another one comes before that."""

    draft: Draft
    rule: str
    until_ns: Nanos
    changes: Changes = Changes()


class Called(NamedTuple):
    """It goes on when a function has said what becomes of it."""

    draft: Draft
    rule: str
    function: str
    within_ns: Nanos
    changes: Changes = Changes()


class Failed(NamedTuple):
    rule: str
    reason: str
    changes: Changes = Changes()


Result: TypeAlias = Passed | Dropped | Held | Called | Failed


class Memory:
    """What rules remember of topics."""

    def __init__(self) -> None:
        self.values: dict[Key, float] = {}
        """The last number that passed a deadband."""
        self.windows: dict[Key, Nanos] = {}
        """Until when no more messages of a topic pass."""

    def apply(self, changes: Changes) -> None:
        for key, value in changes.values:
            _remember(self.values, key, value)
        for key, until_ns in changes.windows:
            _remember(self.windows, key, until_ns)

    def forget(self, rules: Iterable[str]) -> None:
        """Everything but of these rules."""
        kept = set(rules)
        self.values = {key: value for key, value in self.values.items() if key[0] in kept}
        self.windows = {key: value for key, value in self.windows.items() if key[0] in kept}


class Mediation:
    """SelectorError from the constructor."""

    def __init__(self, rules: Iterable[MediationRule]) -> None:
        self._actions = tuple(Actions(rule) for rule in rules)
        self._places = {actions.name: place for place, actions in enumerate(self._actions)}
        self._filters: FilterTrie[None] = FilterTrie()
        for actions in self._actions:
            self._filters.add(actions.rule.topic, None)
        self._known: dict[str, bool] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)

    @property
    def rules(self) -> tuple[MediationRule, ...]:
        return tuple(actions.rule for actions in self._actions)

    def concerns(self, topic: str) -> bool:
        """Whether there are rules for messages of the topic."""
        known = self._known.get(topic)
        if known is None:
            known = bool(self._filters.match(topic))
            if len(self._known) >= TOPICS_LOOKED_UP_MAX:
                self._known.clear()
            self._known[topic] = known
        return known

    def window_ns(self, rule: str) -> Nanos:
        """The interval of a rule; 0 if there is no such rule any more."""
        place = self._places.get(rule)
        return 0 if place is None else self._actions[place].rule.every_ns or 0

    def run(self, draft: Draft, memory: Memory, now: Nanos, resume: Resume | None = None) -> Result:
        """`resume`: where it goes on. If that rule is not there any more, no other one is applied."""
        start, is_released = 0, False
        if resume is not None:
            place = self._places.get(resume.rule)
            if place is None:
                return Passed(draft)
            is_released = resume.stage is RuleStage.HELD
            start = place if is_released else place + 1
        changes = Changes()
        for actions in self._actions[start:]:
            rule = actions.rule
            try:
                if not is_released:
                    if not actions.is_for(draft):
                        continue
                    ended = _end(actions, draft, memory, changes, now)
                    if not isinstance(ended, Changes):
                        return ended
                    changes = ended
                is_released = False
                draft = actions.change(draft)
            except RuleFailed as failed:
                return Failed(rule.name, str(failed), changes)
            if rule.call:
                return Called(draft, rule.name, rule.call, rule.call_within_ns, changes)
        return Passed(draft, changes)


def _end(actions: Actions, draft: Draft, memory: Memory, changes: Changes, now: Nanos) -> Result | Changes:
    """The result, if the message goes no further for now, or is not changed any more; else what is to be remembered."""
    rule = actions.rule
    if rule.drop:
        return Dropped(rule.name, changes)
    if rule.keep:
        return Passed(draft, changes)
    key = rule.name, draft.topic
    if rule.deadband is not None and draft.payload:
        value, last = actions.deadband_value(draft), memory.values.get(key)
        if last is not None and abs(value - last) < rule.deadband[1]:
            return Dropped(rule.name, changes)
        changes = changes._replace(values=(*changes.values, (key, value)))
    if rule.every_ns:
        until_ns = memory.windows.get(key, 0)
        if now < until_ns:
            return Held(draft, rule.name, until_ns, changes)
        changes = changes._replace(windows=(*changes.windows, (key, now + rule.every_ns)))
    return changes


def _remember(memory: "dict[Key, float] | dict[Key, int]", key: Key, value: float) -> None:
    memory.pop(key, None)
    if len(memory) >= TOPICS_REMEMBERED_MAX:
        del memory[next(iter(memory))]
    memory[key] = value  # type: ignore[assignment]
