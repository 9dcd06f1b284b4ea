"""Durable logs of subscriptions, and writers that publish a batch once."""

from typing import Literal

import msgspec

from overlane.adminapi.views.view import View


class StreamView(View, frozen=True, kw_only=True):
    """A durable log of a subscription. `first`: the oldest offset kept. `next`: the offset of the next message."""

    broker: str
    name: str
    filter: str
    scope: Literal["here", "everywhere"]
    user: str | None
    """The user whose access rights apply; null: an operator."""
    since_ns: int
    """Creation time. Offsets are valid only together with it: a stream that is created again has new offsets."""
    first: int
    next: int
    messages: int
    bytes: int
    lost: int
    """Messages discarded for lack of space before they were committed."""


class StreamList(View, frozen=True, kw_only=True):
    items: tuple[StreamView, ...]


class StreamMessageView(View, frozen=True, kw_only=True, array_like=True):
    offset: int
    arrived_ns: int
    """Nanoseconds since 1970, by the broker's clock."""
    topic: str
    payload: bytes
    qos: int
    retain: bool
    user_properties: tuple[tuple[str, str], ...]


class StreamMessagePage(View, frozen=True, kw_only=True):
    """`next`: the offset to continue from."""

    since_ns: int
    next: int
    messages: tuple[StreamMessageView, ...]


class WriterMessageView(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message that a writer publishes."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


class WriterBatchView(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a writer's batch: its messages from index `start` on."""

    batch: int
    start: int
    messages: tuple[WriterMessageView, ...]


class WriterProgressView(View, frozen=True, kw_only=True):
    """A writer's progress in its batch."""

    count: int
    """Messages of the batch published so far."""
    refused: str
    """Why the rest was not published; empty if all was. The writer may retry."""
