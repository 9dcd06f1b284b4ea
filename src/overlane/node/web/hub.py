"""The WebSub hub: verifies subscribers, and delivers to callbacks what their streams log.

Each callback gets its messages in order, one at a time. A message that was answered with 2xx is committed; otherwise it
is tried again, with growing pauses, until the lease ends. 410 ends the subscription. The log of the stream is durable,
so a message may come twice after a crash, and none is left out.
"""

import asyncio
import logging
import secrets
from collections.abc import Coroutine

from overlane.core.topics import BadTopic
from overlane.core.units import NEVER, SECOND
from overlane.errors import Unavailable
from overlane.network.schema import Web
from overlane.node.driver import Driver
from overlane.node.web.access import Caller
from overlane.node.web.callback_client import CallbackClient
from overlane.node.web.topics import session_of
from overlane.pubsub.properties import decode
from overlane.pubsub.streams.callbacks import Callback
from overlane.pubsub.streams.streams import Gone, Logged, StreamLog, Unwelcome
from overlane.web.errors import BadWebRequest
from overlane.web.responses import links, message_headers
from overlane.web.websub import (
    HUB_PATH,
    HubRequest,
    delivery_target,
    denial_target,
    read_form,
    read_hub_request,
    signature,
    verification_target,
)

VERIFYING_MAX = 100
RETRY_S = 1.0
RETRY_S_MAX = 300.0

log = logging.getLogger("overlane.web")


class Hub:
    def __init__(self, driver: Driver, web: Web) -> None:
        self._driver = driver
        self._client = CallbackClient(web.callback_networks)
        self._callbacks = driver.server.pubsub.callbacks
        self._verifying: set[asyncio.Task[None]] = set()
        self._delivering: dict[str, asyncio.Task[None]] = {}
        for callback in self._callbacks.all():
            self._deliver_soon(callback.name)

    async def stop(self) -> None:
        tasks = [*self._verifying, *self._delivering.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Requests of subscribers

    def ask(self, body: bytes, caller: Caller, own_url: str) -> None:
        """Take a request, to be verified; BadWebRequest."""
        request = read_hub_request(read_form(body), own_url)
        if len(self._verifying) >= VERIFYING_MAX:
            raise BadWebRequest("too many subscriptions are being verified; try again", 429)
        self._spawn_verification(self._verify(request, caller))

    def _spawn_verification(self, verification: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(verification)
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)
        task.add_done_callback(lambda done: self._driver.failures.look_at(done, "a verification"))

    async def _verify(self, request: HubRequest, caller: Caller) -> None:
        try:
            if request.mode == "subscribe" and (why := self._why_not(request, caller)):
                log.info("WebSub: %s is refused: %s", request.callback[:100], why)
                await self._client.request("GET", request.callback, denial_target(request, why))
                return
            challenge = secrets.token_urlsafe(24)
            target = verification_target(request, challenge)
            response = await self._client.request("GET", request.callback, target)
        except Unavailable as error:
            log.info("WebSub: not verified: %s", error)
            return
        if not 200 <= response.status < 300 or response.body.strip() != challenge.encode():
            log.info("WebSub: %s did not confirm: status %d", request.callback[:100], response.status)
            return
        self._verified(request, caller)

    def _why_not(self, request: HubRequest, caller: Caller) -> str:
        access = self._driver.server.state.settings.access
        if request.filter.startswith("$"):
            return "topics that begin with $ have no callbacks"
        if not access.may_subscribe(caller.user, session_of(caller).client_id, request.filter):
            return f"not allowed to subscribe to {request.filter[:100]}"
        return ""

    def _verified(self, request: HubRequest, caller: Caller) -> None:
        now = self._driver.clock.now()
        expires_ns = now + request.lease_s * SECOND
        callback = Callback(
            request.callback, request.topic_url, request.filter, caller.user, request.secret, expires_ns
        )
        if request.mode == "unsubscribe":
            self._callbacks.remove(callback.name, now)
        else:
            try:
                self._callbacks.add(callback, now)
            except (Unwelcome, BadTopic) as why:
                log.warning("WebSub: no subscription for %s: %s", request.callback[:100], why)
                return
            self._deliver_soon(callback.name)
        self._driver.end_turn_soon()

    # Delivery

    def _deliver_soon(self, name: str) -> None:
        if name not in self._delivering:
            task = self._delivering[name] = asyncio.get_running_loop().create_task(self._deliver(name))
            task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._delivering[name]
        self._driver.failures.look_at(task, "a callback")
        if not task.cancelled() and self._callbacks.get(name) is not None:
            self._deliver_soon(name)  # it was subscribed again meanwhile

    async def _deliver(self, name: str) -> None:
        """Until the subscription ends."""
        streams, appended, retry_s = self._driver.server.streams, asyncio.Event(), RETRY_S
        watched: StreamLog | None = None
        try:
            while (found := self._callbacks.get(name)) is not None:
                callback, stream = found
                if watched is not stream:
                    stream.watchers.add(appended.set)
                    watched = stream
                appended.clear()
                now = self._driver.clock.now()
                try:
                    messages, following = streams.read(stream, stream.first, NEVER, 1, 0, now)
                except Gone:
                    continue
                if not messages and following == stream.first:
                    await self._wait(appended, stream, callback)
                elif not messages or await self._post(callback, messages[0][1]):
                    retry_s = RETRY_S
                    self._commit(stream, following)
                else:
                    await asyncio.sleep(retry_s)
                    retry_s = min(RETRY_S_MAX, 2 * retry_s)
        finally:
            if watched is not None:
                watched.watchers.discard(appended.set)

    async def _wait(self, appended: asyncio.Event, stream: StreamLog, callback: Callback) -> None:
        """For the next message, or for one that is on its way to the disk; not beyond the lease."""
        if stream.next > stream.first:
            await self._driver.written()
            return
        left_s = max(0.0, (callback.expires_ns - self._driver.clock.now()) / SECOND) + 0.1
        try:
            # Not much longer at once, so that a callback that was removed is noticed.
            async with asyncio.timeout(min(left_s, 1.0)):
                await appended.wait()
        except TimeoutError:
            return

    async def _post(self, callback: Callback, message: Logged) -> bool:
        """Post a message; whether the callback has taken it, or wants no more."""
        own_url = callback.topic_url.partition("/topics/")[0]
        headers = [
            *message_headers(message.topic, decode(message.properties)),
            links(own_url + HUB_PATH, callback.topic_url),
        ]
        if callback.secret:
            headers.append(("x-hub-signature", signature(callback.secret, message.payload)))
        try:
            response = await self._client.request(
                "POST", callback.url, delivery_target(callback.url), headers, message.payload
            )
        except Unavailable as error:
            log.debug("WebSub: not delivered: %s", error)
            return False
        if response.status == 410:
            log.info("WebSub: %s is gone", callback.url[:100])
            self._callbacks.remove(callback.name, self._driver.clock.now())
            self._driver.end_turn_soon()
            return False
        return 200 <= response.status < 300

    def _commit(self, stream: StreamLog, to: int) -> None:
        streams = self._driver.server.streams
        if streams.get(stream.name) is stream:
            try:
                streams.commit(stream, to, self._driver.clock.now())
            except Gone:
                return
            self._driver.end_turn_soon()
