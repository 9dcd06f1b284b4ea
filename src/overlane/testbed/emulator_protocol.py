"""The protocol between a wide area and its emulator: one JSON value per line, a request and its response.

The first request is the configuration; its response says that all devices exist. When the connection closes, the
emulator exits and removes everything.
"""

from typing import TypeAlias

import msgspec

from overlane.testbed.direction import Carried, Conditions
from overlane.testbed.switch import SwitchConfig


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Open a device in each of these namespaces, in the order of the plan's plugs."""

    plan: SwitchConfig
    namespaces: tuple[str, ...]
    devices: tuple[str, ...]
    is_urgent: bool


class Change(msgspec.Struct, frozen=True, tag="change"):
    """One direction is like this from now on."""

    source: str
    target: str
    conditions: Conditions


class Plugged(msgspec.Struct, frozen=True, tag="plugged"):
    """The uplink with this number is plugged in, or not."""

    plug: int
    is_in: bool


class HowMuch(msgspec.Struct, frozen=True, tag="how-much"):
    """What has been carried so far?"""


Question: TypeAlias = Begin | Change | Plugged | HowMuch


class Answer(msgspec.Struct, frozen=True):
    """`fault` says why it could not be done. `carried` answers HowMuch."""

    fault: str | None = None
    carried: tuple[tuple[str, str, Carried], ...] = ()
    refused: int = 0
    is_urgent: bool = False
