"""Access: who may publish and receive what.

Without any rule, whoever may connect may do everything. With one, only what some rule allows, so that a forgotten rule
closes a door and never opens one. Rules only add rights: a client has those of all rules for its user.

A rule's patterns are topic filters in which the level `%u` stands for the client's user name and `%c` for its client
id. A name with `+`, `#` or `/` in it would change what the filter means, and one with `$` in front as the first level
would reach into the server's own topics: for such a client the pattern matches nothing at all.

A client may subscribe where one pattern covers its whole filter, and each message is judged again on its own topic
when it is delivered, since rights can change while a session lasts. Topics that begin with `$` are the server's: they
can be read where a pattern says so literally, and no client publishes to them.
"""

import msgspec

from overlane.core.topics import BadTopic, check_filter

ANY_USER = "*"
"""The rule's user that means every client that has logged in."""

ANONYMOUS = "anonymous"
"""The rule's user that means every client that has not."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


def check_pattern(pattern: str) -> None:
    """BadTopic if it is no filter, or has `%u` or `%c` otherwise than as a whole level."""
    check_filter(pattern)
    for level in pattern.split("/"):
        if level not in ("%u", "%c") and ("%u" in level or "%c" in level):
            raise BadTopic(f"pattern {pattern[:60]!a}: `%u` and `%c` are allowed only as a whole level")
