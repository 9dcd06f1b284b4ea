"""Subjects of NATS and topics of MQTT: two ways to write the same name.

    sensors.hall-3.temp   <->   sensors/hall-3/temp        tokens and levels
    sensors.*.temp        <->   sensors/+/temp             one token, in subscriptions
    sensors.>             <->   sensors/#                  one token or more; MQTT's `#` also matches `sensors`

Each side has characters that the other cannot have within a token or level. There they are written as `%` and two
hexadecimal digits, in capitals:

    in a subject, for a level with   `.` %2E, a blank or control character %20, %09, ...; all of it `*` %2A or `>` %3E;
                                     `%` alone for an empty level
    in a topic, for a token with     `/` %2F, `+` %2B, `#` %23

Where one of these sequences stands in a name itself, its `%` is written `%25`. Any other text, a `%` included, is the
same on both sides. So every subject has one topic, and every topic one subject: what one NATS client publishes reaches
another under the same subject, and so it is with MQTT clients.
"""

import re
from functools import lru_cache

from overlane.errors import OverlaneError

NAMES_KEPT = 20_000
"""Names that are translated again and again."""

_OF_SUBJECTS = r"2E|20|0[1-9A-F]|1[0-9A-F]|7F"
"""What stands for a character of topics that subjects cannot have."""
_OF_TOPICS = "2F|2B|23"
_to_topic = re.compile(f"%((?:25)*)({_OF_SUBJECTS}|{_OF_TOPICS})|[/+#]")
_to_subject = re.compile(f"%((?:25)*)({_OF_SUBJECTS}|{_OF_TOPICS})|[\x01-\x20.\x7f]")
_in_group = re.compile(f"%((?:25)*)({_OF_TOPICS})|[/+#]")
_WHOLE = {"": "", "2A": "*", "3E": ">"}
"""What stands for a whole level that a subject cannot have as a token."""
_whole = re.compile(r"%((?:25)*)(2A|3E|)")
_BAD_IN_SUBJECT = re.compile("[\x00-\x20\x7f]")


class BadSubject(OverlaneError, ValueError):
    """A subject that NATS does not allow, or not there."""

    error_code = "OVL-132"


def topic_of(subject: str) -> str:
    """The topic of a subject to publish on; BadSubject."""
    levels = []
    for token in _tokens(subject):
        if token in ("*", ">"):
            raise BadSubject("a wildcard in a subject to publish on")
        levels.append(_level(token))
    return "/".join(levels)


def filter_of(subject: str) -> str:
    """The filter of a subject to subscribe to; BadSubject."""
    tokens = _tokens(subject)
    levels = []
    for place, token in enumerate(tokens, 1):
        if token == "*":
            levels.append("+")
        elif token == ">":
            if place < len(tokens):
                raise BadSubject("`>` is allowed only at the end")
            levels.append("#")
        else:
            levels.append(_level(token))
    return "/".join(levels)


def group_of(queue: str) -> str:
    """The name of the shared subscription of a queue group; BadSubject."""
    if not queue or _BAD_IN_SUBJECT.search(queue):
        raise BadSubject("a queue group with a blank or control character")
    return _in_group.sub(_in_topic, queue)


@lru_cache(maxsize=NAMES_KEPT)
def subject_of(topic: str) -> str:
    """The subject of a topic that messages are published on."""
    return ".".join(map(_token, topic.split("/")))


def subjects_of(topic_filter: str) -> tuple[str, ...]:
    """The subjects to subscribe to for what matches a filter: MQTT's `#` matches also what is in front of it."""
    levels = topic_filter.split("/")
    tokens = ["*" if level == "+" else _token(level) for level in levels if level != "#"]
    if levels[-1] != "#":
        return (".".join(tokens),)
    return (".".join([*tokens, ">"]), *((".".join(tokens),) if tokens else ()))


def _tokens(subject: str) -> list[str]:
    if _BAD_IN_SUBJECT.search(subject):
        raise BadSubject("a blank or control character")
    tokens = subject.split(".")
    if not all(tokens):
        raise BadSubject("an empty token")
    return tokens


def _level(token: str) -> str:
    if "%" not in token and "/" not in token and "+" not in token and "#" not in token:
        return token
    if (found := _whole.fullmatch(token)) is not None:
        return f"%{found[1][2:]}{found[2]}" if found[1] else _WHOLE[found[2]]
    return _to_topic.sub(_in_topic, token)


def _in_topic(found: re.Match[str]) -> str:
    shifts, code = found[1], found[2]
    if code is None:
        return f"%{ord(found[0]):02X}"
    if code in ("2F", "2B", "23"):
        return f"%25{shifts}{code}"
    return f"%{shifts[2:]}{code}" if shifts else chr(int(code, 16))


def _token(level: str) -> str:
    if level in ("", "*", ">"):
        return f"%{ord(level):02X}" if level else "%"
    if (found := _whole.fullmatch(level)) is not None:
        return f"%25{found[1]}{found[2]}"
    return _to_subject.sub(_in_subject, level)


def _in_subject(found: re.Match[str]) -> str:
    shifts, code = found[1], found[2]
    if code is None:
        return f"%{ord(found[0]):02X}"
    if code in ("2F", "2B", "23"):
        return f"%{shifts[2:]}{code}" if shifts else chr(int(code, 16))
    return f"%25{shifts}{code}"
