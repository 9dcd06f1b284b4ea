"""Reads and writes [[mediation]]: rules that change messages where they are published (`overlane.mediation`)."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from overlane.core.topics import BadTopic, overlaps
from overlane.mediation.actions import Actions
from overlane.mediation.border import BorderRules
from overlane.mediation.mediation import Mediation
from overlane.mediation.renaming import check_template
from overlane.mediation.rule import (
    BORDERS,
    CALL_WITHIN_NS,
    EVERY_NS_MAX,
    FORMATS,
    Border,
    Format,
    MediationRule,
    has_action,
)
from overlane.network.schema import Network
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import NOTHING, Table, show
from overlane.quantities import MS, SECOND, format_duration
from overlane.selectors import Expression, Selector, SelectorError

_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
TEXT_CHARS_MAX = 4_096
CALL_WITHIN_NS_MAX = 60 * SECOND
ACTIONS = (
    *("drop", "keep", "deadband", "every", "set_fields", "remove_fields", "set_properties", "remove_properties"),
    *("encode", "rename", "call"),
)

Pairs = tuple[tuple[str, str], ...]


def read_mediation(tables: Iterable[Table], names: Sequence[str]) -> Iterator[MediationRule]:
    seen: set[str] = set()
    for table in tables:
        rule = MediationRule(
            name=table.required("name", kinds.name()),
            topic=table.optional("topic", kinds.topic_filter(), "#"),
            where=table.optional("where", _text("a selector such as \"temperature > 20 AND room = 'lab1'\""), None)
            or "",
            brokers=table.many("brokers", kinds.broker(names)),
            border=_border(table),
            domain=table.optional("domain", kinds.name(), None) or "",
            drop=table.optional("drop", kinds.flag(), False),
            keep=table.optional("keep", kinds.flag(), False),
            deadband=table.optional("deadband", _deadband(), None),
            every_ns=table.optional("every", _every, None),
            set_fields=_pairs(table, "set_fields", _expressions()),
            remove_fields=table.many("remove_fields", _text('a field such as "room.floor"')),
            set_properties=_pairs(table, "set_properties", _properties()),
            remove_properties=table.many("remove_properties", _text("the name of a user property")),
            decode=table.optional("decode", _format, None),
            encode=table.optional("encode", _format, None),
            rename=table.optional("rename", _template(), None) or "",
            call=table.optional("call", _function(), None) or "",
            call_within_ns=table.optional("call_within", _call_within, CALL_WITHIN_NS),
        )
        if rule.name and rule.name in seen:
            table.refuse("name", "a name that no rule before it has")
        seen.add(rule.name)
        _check(table, rule)
        table.close()
        yield rule


def mediation_of(network: Network, broker: str) -> Mediation | None:
    """The rules of a broker, in the order of the file; None if it has none."""
    rules = [rule for rule in network.mediation if not rule.border and (not rule.brokers or broker in rule.brokers)]
    return Mediation(rules) if rules else None


def border_rules_of(network: Network, broker: str) -> BorderRules | None:
    """The rules at borders of domains, for a broker; None if there are none."""
    rules = tuple(rule for rule in network.mediation if rule.border)
    domains = {one.name: one.domain or one.name for one in network.brokers}
    return BorderRules(domains.get(broker, broker), domains, rules) if rules else None


def refuse_borders(root: Table, network: Network) -> None:
    """What rules at borders cannot be combined with."""
    domains = {one.domain or one.name for one in network.brokers}
    is_tiered = network.coordination is not None or any(one.role != "plain" for one in network.brokers)
    for index, rule in enumerate(network.mediation):
        if not rule.border:
            continue
        path = "mediation", index
        if rule.domain not in domains:
            allowed = "the domain of a broker of this file, or the name of a broker without one"
            root.faults.add((*path, "domain"), show(rule.domain) if rule.domain else NOTHING, allowed)
        if is_tiered:
            root.faults.add((*path, "border"), show(rule.border), "no rules at borders with [coordination] or roles")
        for topic in network.topics:
            if topic.history and overlaps(topic.filter, rule.topic):
                allowed = f"topics without history, and {topic.filter} has some"
                root.faults.add((*path, "topic"), show(rule.topic), allowed)


def _border(table: Table) -> Border:
    found = table.optional("border", kinds.choice(BORDERS), None)
    return "" if found is None else found


def _pairs(table: Table, field: str, kind: FieldKind[Pairs]) -> Pairs:
    found: Pairs | None = table.optional(field, kind, None)
    return found or ()


def _check(table: Table, rule: MediationRule) -> None:
    if rule.where:
        try:
            Selector.parse(rule.where)
        except SelectorError as wrong:
            table.refuse("where", f"a selector: {wrong}")
            return
    if not has_action(rule):
        table.faults.add(table.path, NOTHING + " that it does", f"at least one of {', '.join(ACTIONS)}")
    if rule.border:
        for field in ("brokers", "every", "rename", "call"):
            if field in table:
                table.refuse(field, "nothing in a rule at a border")
    elif "domain" in table:
        table.refuse("domain", 'nothing without border = "leave" or "enter"')
    if rule.drop and rule.keep:
        table.refuse("keep", "false, since drop is true")
    try:
        Actions(rule)
    except SelectorError as wrong:
        table.faults.add(table.path, f"a wrong expression ({wrong})", "expressions as in selectors")


# Kinds of values

_word = kinds.choice(FORMATS)
_format: FieldKind[Format | None] = FieldKind(_word.allowed, _word.read, blank=None, words=FORMATS)
_every = kinds.duration(
    at_least_ns=MS, at_most_ns=EVERY_NS_MAX, allowed='a duration from "1ms" to "24h" such as "500ms" or "10s"'
)
_call_within = kinds.duration(
    at_least_ns=MS, at_most_ns=CALL_WITHIN_NS_MAX, allowed='a duration from "1ms" to "60s" such as "100ms"'
)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= TEXT_CHARS_MAX and "\0" not in value


def _text(allowed: str) -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not _is_text(value):
            raise ValueError("not a text")
        return value

    return FieldKind(allowed, read, blank="")


def _deadband() -> FieldKind[tuple[str, float] | None]:
    def read(value: object) -> tuple[str, float]:
        if not isinstance(value, dict) or set(value) != {"field", "change"}:
            raise ValueError("not a deadband")
        field, change = value["field"], value["change"]
        if isinstance(change, bool) or not isinstance(change, int | float) or not _is_text(field):
            raise ValueError("not a deadband")
        if not (math.isfinite(change) and change > 0):
            raise ValueError("no change")
        return field, float(change)

    return FieldKind('a table such as { field = "temperature", change = 0.5 }', read, blank=None)


def _expressions() -> FieldKind[Pairs]:
    def read(value: object) -> Pairs:
        if not isinstance(value, dict):
            raise ValueError("not a table")
        pairs = [(field, _literal(one)) for field, one in value.items()]
        for field, text in pairs:
            if not _is_text(field):
                raise ValueError("no field")
            try:
                Expression.parse(text)
            except SelectorError as wrong:
                raise ValueError(str(wrong)) from None
        return tuple(pairs)

    allowed = 'a table of fields and expressions such as { celsius = "(fahrenheit - 32) / 1.8", unit = "\'C\'" }'
    return FieldKind(allowed, read, blank=())


def _literal(value: object) -> str:
    """The text of an expression. Numbers and truth values stand for themselves."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float) and math.isfinite(value):
        return repr(value)
    if not isinstance(value, str) or not _is_text(value):
        raise ValueError("not an expression")
    return value


def _properties() -> FieldKind[Pairs]:
    def read(value: object) -> Pairs:
        if not isinstance(value, dict) or not all(_is_text(name) for name in value):
            raise ValueError("not a table")
        if not all(isinstance(one, str) and "\0" not in one for one in value.values()):
            raise ValueError("not texts")
        return tuple(value.items())

    return FieldKind('a table of user properties and texts such as { unit = "C" }', read, blank=())


def _template() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("not a text")
        try:
            check_template(value)
        except BadTopic as bad:
            raise ValueError(str(bad)) from None
        return value

    return FieldKind('a topic with levels of the old one such as "plant/{2}/{4-}"', read, blank="")


def _function() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or _FUNCTION.fullmatch(value) is None:
            raise ValueError("not a function")
        return value

    return FieldKind('a Python function such as "package.module:function"', read, blank="")


# Writing


def format_rule(rule: MediationRule) -> Iterator[str]:
    """The lines of one rule."""
    yield "[[mediation]]"
    yield f"name = {_quoted(rule.name)}"
    for field in ("topic", "where", "brokers", "border", "domain", "drop", "keep"):
        value = getattr(rule, field)
        if value != getattr(_BLANK, field):
            yield f"{field} = {_shown(value)}"
    if rule.deadband is not None:
        yield f"deadband = {{ field = {_quoted(rule.deadband[0])}, change = {rule.deadband[1]!r} }}"
    if rule.every_ns is not None:
        yield f"every = {_quoted(format_duration(rule.every_ns))}"
    for field in ("set_fields", "set_properties"):
        if pairs := getattr(rule, field):
            inner = ", ".join(f"{_quoted(name)} = {_quoted(value)}" for name, value in pairs)
            yield f"{field} = {{ {inner} }}"
    for field in ("remove_fields", "remove_properties", "decode", "encode", "rename", "call"):
        value = getattr(rule, field)
        if value != getattr(_BLANK, field):
            yield f"{field} = {_shown(value)}"
    if rule.call_within_ns != CALL_WITHIN_NS:
        yield f"call_within = {_quoted(format_duration(rule.call_within_ns))}"


_BLANK = MediationRule(name="")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_quoted(one) for one in value)}]"
    return str(value).lower() if isinstance(value, bool) else _quoted(str(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
