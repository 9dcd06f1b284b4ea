"""Mosquitto's ACL file as access rules.

    topic [read|write|readwrite|deny] FILTER     of anonymous clients before the first `user`, else of that user
    user NAME
    pattern [read|write|readwrite|deny] FILTER   of everybody, with %u and %c

A line that cannot be an access rule is reported, and the rights that it would give are not given. A `deny` that cannot
be one is an error of the whole file: without it clients would get more than before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from overlane.core.topics import BadTopic
from overlane.pubsub.access import ANONYMOUS, ANY_USER, Rule, check_pattern

DENY = "deny"
_LISTS = {
    "read": ("subscribe",),
    "write": ("publish",),
    "readwrite": ("publish", "subscribe"),
    DENY: ("deny_publish", "deny_subscribe"),
}


@dataclass(slots=True)
class AccessList:
    rules: list[Rule] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Lines that have no counterpart, and why."""
    faults: list[str] = field(default_factory=list)
    """Lines without which clients would get more rights than the file gives."""


def read_acl(text: str) -> AccessList:
    found = AccessList()
    rights: dict[str, dict[str, list[str]]] = {}
    user = ANONYMOUS
    for number, words in _lines(text):
        line = f"line {number}: {' '.join(words)}"
        keyword, rest = words[0], words[1:]
        if keyword == "user" and rest:
            user = " ".join(rest)
            if user in (ANY_USER, ANONYMOUS):
                found.faults.append(f"{line}: the name of all users, or of anonymous clients, in Overlane")
            rights.setdefault(user, {})
            continue
        if keyword not in ("topic", "pattern") or not rest:
            found.notes.append(f"{line}: not known")
            continue
        action = rest.pop(0) if rest[0] in _LISTS and len(rest) > 1 else "readwrite"
        topic = " ".join(rest)
        if wrong := _wrong_with(keyword, topic):
            (found.faults if action == DENY else found.notes).append(f"{line}: {wrong}")
            continue
        for one in (user,) if keyword == "topic" else (ANY_USER, ANONYMOUS):
            for name in _LISTS[action]:
                rights.setdefault(one, {}).setdefault(name, []).append(topic)
    found.rules = [_rule(user, lists) for user, lists in rights.items()]
    return found


def _wrong_with(keyword: str, topic: str) -> str:
    """Why a filter cannot be one of an access rule; empty if it can."""
    try:
        check_pattern(topic)
    except BadTopic as bad:
        return str(bad)
    if keyword == "topic" and {"%u", "%c"} & set(topic.split("/")):
        return "%u and %c are literal here, and stand for names in Overlane"
    return ""


def _rule(user: str, lists: dict[str, list[str]]) -> Rule:
    return Rule(user=user, **{name: tuple(dict.fromkeys(topics)) for name, topics in lists.items()})


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words
