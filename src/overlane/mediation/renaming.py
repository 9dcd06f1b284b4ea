"""A new topic made of the levels of an old one.

plant/{2}/{4-}      of sensors/hall/raw/1/x is plant/hall/1/x: {2} is the second level, {4-} all from the fourth on
"""

import re

from overlane.core.topics import BadTopic, check_topic
from overlane.mediation.rule import RuleFailed

_PLACE = re.compile(r"\{([1-9][0-9]{0,2})(-?)\}")
_BRACES = re.compile(r"[{}]")


def check_template(template: str) -> None:
    """ValueError, or BadTopic, if no topic can be made of it."""
    if _BRACES.search(_PLACE.sub("", template)):
        raise ValueError("braces are for numbers of levels: {1}, {2-}")
    check_topic(_PLACE.sub("x", template))
    if template.startswith("$"):
        raise ValueError("topics that begin with $ belong to the broker")


def renamed(template: str, topic: str) -> str:
    """RuleFailed if the topic has not enough levels, or the result is no topic to publish on."""
    levels = topic.split("/")

    def fill(found: re.Match[str]) -> str:
        number = int(found[1])
        if number > len(levels):
            raise RuleFailed(f"rename: the topic has {len(levels)} levels, and no level {number}")
        return "/".join(levels[number - 1 :]) if found[2] else levels[number - 1]

    new = _PLACE.sub(fill, template)
    try:
        check_topic(new)
    except BadTopic as bad:
        raise RuleFailed(f"rename: {bad}") from None
    if new.startswith("$"):
        raise RuleFailed(f"rename: {new[:60]} begins with $")
    return new
