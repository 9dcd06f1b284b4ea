"""The operations of the admin API for retained messages: list them by topic, and remove them at all brokers.

A broker may keep any number of them. They are looked for in pieces, and the loop works in between; one request removes
at most as many as fit a page.
"""

import asyncio
from itertools import islice

from overlane.adminapi.views import ErrorView, RetainedMessageView, RetainedPage, RetainedRemoved
from overlane.core.topics import BadTopic, check_filter
from overlane.core.units import MS, NEVER, Nanos
from overlane.node.admin.operations import (
    LIMIT,
    LIMIT_MAX,
    Answer,
    Asked,
    BadAdminRequest,
    Operation,
    Parameter,
    json_answer,
    limit_of,
)
from overlane.node.admin.paging import PIECE
from overlane.node.driver import Driver
from overlane.pubsub.contract.refused import PublicationRefused
from overlane.pubsub.message import Message

_LIMIT = Parameter(
    "limit", f"Maximum number of messages, up to {LIMIT_MAX}.", schema={"type": "integer", "default": LIMIT}
)


class RetainedOperations:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        after = Parameter("after", "The `next` of the previous page.")
        listed = Parameter("filter", "Only topics that match this MQTT filter.")
        removed = Parameter("filter", "Which topics, as an MQTT filter; required.")
        self.all: tuple[Operation, ...] = (
            Operation(
                "GET",
                "/retained",
                "Retained messages by topic.",
                self._list,
                {200: RetainedPage, 400: ErrorView},
                (_LIMIT, after, listed),
            ),
            Operation(
                "DELETE",
                "/retained",
                "Remove retained messages at all brokers. Subscribers are not notified.",
                self._remove,
                {200: RetainedRemoved, 400: ErrorView, 503: ErrorView},
                (_LIMIT, removed),
            ),
        )

    async def _list(self, asked: Asked) -> Answer:
        limit = limit_of(asked)
        found = await self._find(_filter(asked, "#"), asked.get("after", ""), limit + 1)
        now = self._driver.clock.now()
        items = tuple(_view(message, now) for message in found[:limit])
        return json_answer(RetainedPage(items=items, next=items[-1].topic if len(found) > limit else None))

    async def _remove(self, asked: Asked) -> Answer:
        limit = limit_of(asked)
        found = await self._find(_filter(asked, ""), "", limit + 1)
        driver = self._driver
        try:
            for message in found[:limit]:
                driver.server.remove_retained(message.topic, driver.clock.now())
        except PublicationRefused as refused:
            return json_answer(ErrorView(error=refused.told), 503)
        finally:
            driver.end_turn_soon()
        return json_answer(RetainedRemoved(removed=len(found[:limit]), has_more=len(found) > limit))

    async def _find(self, topic_filter: str, after: str, count: int) -> list[Message]:
        """In the order of topic levels, from behind a topic."""
        found: list[Message] = []
        places = self._driver.server.state.retained.walk(topic_filter, after)
        while len(found) < count and (piece := list(islice(places, PIECE))):
            found += [message for message in piece if message is not None]
            await asyncio.sleep(0)
        return found[:count]


def _filter(asked: Asked, default: str) -> str:
    topic_filter = asked.get("filter", default)
    try:
        check_filter(topic_filter)
    except BadTopic as bad:
        raise BadAdminRequest(f"filter: {bad}") from None
    if topic_filter.startswith("$SYS"):
        raise BadAdminRequest("filter: got topics of the broker itself; expected topics of clients")
    return topic_filter


def _view(message: Message, now: Nanos) -> RetainedMessageView:
    expires_ns = message.expires_ns
    return RetainedMessageView(
        topic=message.topic,
        bytes=len(message.payload),
        qos=message.qos,
        age_s=max(0, now - message.published_ns) // MS / 1000,
        expires_s=None if expires_ns == NEVER else max(0, expires_ns - now) // MS / 1000,
    )
