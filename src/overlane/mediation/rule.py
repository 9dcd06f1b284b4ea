"""A rule of mediation as the network file has it.

A rule is for messages whose topic matches a filter and whose content meets a selector. What it says is done in this
order, whatever the order in the file:

    drop, keep                     the message ends here, or passes and no later rule sees it
    deadband                       drop it unless a number has changed enough since the last one that passed
    every                          of each topic one message per interval: the first, then the latest
    set_fields, remove_fields      expressions see the message as it came to the rule
    set_properties, remove_properties
    encode                         the payload in another format
    rename                         another topic
    call                           a function of the user
"""

from typing import Literal, TypeAlias, get_args

import msgspec

from overlane.core.units import MS, SECOND, Nanos
from overlane.errors import OverlaneError

Format: TypeAlias = Literal["json", "cbor", "msgpack"]
FORMATS: tuple[Format, ...] = get_args(Format)

Border: TypeAlias = Literal["", "leave", "enter"]
BORDERS: tuple[Border, ...] = ("leave", "enter")

CALL_WITHIN_NS: Nanos = 100 * MS
EVERY_NS_MAX: Nanos = 86_400 * SECOND


class RuleFailed(OverlaneError):
    """A rule cannot be applied to a message, which becomes a dead letter."""

    error_code = "OVL-141"


class MediationRule(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic: str = "#"
    where: str = ""
    """A selector; "" is every message."""
    brokers: tuple[str, ...] = ()
    """Where it holds; none: at every broker."""
    border: Border = ""
    """For messages that leave `domain`, or that enter it; "": where they are published."""
    domain: str = ""
    drop: bool = False
    keep: bool = False
    deadband: tuple[str, float] | None = None
    """The name of a number, and how much it has to change."""
    every_ns: Nanos | None = None
    set_fields: tuple[tuple[str, str], ...] = ()
    """Paths, and expressions for their values."""
    remove_fields: tuple[str, ...] = ()
    set_properties: tuple[tuple[str, str], ...] = ()
    remove_properties: tuple[str, ...] = ()
    decode: Format | None = None
    """The format of the payload; None: as its content type says, or else JSON."""
    encode: Format | None = None
    rename: str = ""
    call: str = ""
    """A function: `package.module:name`."""
    call_within_ns: Nanos = CALL_WITHIN_NS


def has_action(rule: MediationRule) -> bool:
    return bool(
        rule.drop
        or rule.keep
        or rule.deadband
        or rule.every_ns
        or rule.set_fields
        or rule.remove_fields
        or rule.set_properties
        or rule.remove_properties
        or rule.encode
        or rule.rename
        or rule.call
    )
