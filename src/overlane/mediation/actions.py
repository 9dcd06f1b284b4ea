"""What one rule does to a message: a rule of the file, compiled."""

import math
from functools import lru_cache

from overlane.core.topics import matches
from overlane.mediation.draft import Draft
from overlane.mediation.fields import with_field, without_field
from overlane.mediation.formats import format_of
from overlane.mediation.renaming import renamed
from overlane.mediation.rule import MediationRule, RuleFailed
from overlane.selectors import Expression, Selector, split_name

_parts = lru_cache(maxsize=1024)(split_name)


class Actions:
    """SelectorError from the constructor if a selector or an expression is wrong."""

    def __init__(self, rule: MediationRule) -> None:
        self.rule = rule
        self.name = rule.name
        self._where = Selector.parse(rule.where) if rule.where else None
        self._deadband = Expression.parse(rule.deadband[0]) if rule.deadband is not None else None
        self._fields = [(tuple(_parts(path)), Expression.parse(text)) for path, text in rule.set_fields]
        self._gone = [tuple(_parts(path)) for path in rule.remove_fields]

    def is_for(self, draft: Draft) -> bool:
        if not matches(self.rule.topic, draft.topic):
            return False
        return self._where is None or bool(self._where.matches(draft.values(self.rule.decode)))

    def deadband_value(self, draft: Draft) -> float:
        """RuleFailed if there is no number."""
        assert self._deadband is not None
        value = self._deadband.value(draft.values(self.rule.decode))
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise RuleFailed(f"deadband: {self._deadband.text} is {_shown(value)}; expected a number")
        return float(value)

    def change(self, draft: Draft) -> Draft:
        """The message as the rule makes it; RuleFailed. What has no payload has no fields either."""
        rule, new = self.rule, draft.copy()
        if draft.payload and (self._fields or self._gone or rule.encode):
            self._write(draft, new)
        if rule.set_properties or rule.remove_properties:
            gone = {*rule.remove_properties, *(name for name, _ in rule.set_properties)}
            kept = [pair for pair in draft.properties if pair[0] not in gone]
            new.properties = (*kept, *rule.set_properties)
        if rule.rename:
            new.topic = renamed(rule.rename, draft.topic)
        return new

    def _write(self, draft: Draft, new: Draft) -> None:
        rule = self.rule
        body, values = draft.body(rule.decode), draft.values(rule.decode)
        for path, expression in self._fields:
            value = expression.value(values)
            if value is None:
                raise RuleFailed(f"field {'.'.join(path)}: {expression.text} is NULL: a name in it has no value")
            body = with_field(body, path, value)
        for path in self._gone:
            body = without_field(body, path)
        new.write(body, rule.encode or rule.decode or format_of(draft.content_type))


def _shown(value: object) -> str:
    return "NULL" if value is None else repr(value)[:40]
