"""Callbacks: streams whose messages are sent to a URL, for as long as a lease lasts.

What a callback has not taken yet is in the log of its stream, so that neither a restart nor a subscriber that is away
loses a message before the lease ends. Renewal changes lease and secret, and leaves the log as it is. When the lease
ends or the callback is removed, the stream goes with it.
"""

import hashlib

import msgspec

from overlane.core.events import Erase, Save
from overlane.core.records import THE_BROKER, RecordKind
from overlane.core.units import Nanos
from overlane.pubsub.state import State
from overlane.pubsub.streams.log import Scope, StreamLog
from overlane.pubsub.streams.streams import Streams

TABLE = "web.callback"
PREFIX = "websub."


class Callback(msgspec.Struct, frozen=True, array_like=True):
    """`topic_url`: what the subscriber calls the topic. `user` None: nobody in particular."""

    url: str
    topic_url: str
    filter: str
    user: str | None
    secret: str
    expires_ns: Nanos

    @property
    def name(self) -> str:
        """Of its stream."""
        whole = "\n".join((self.user or "", self.url, self.topic_url))
        return PREFIX + hashlib.sha256(whole.encode()).hexdigest()[:32]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Callback).decode

CALLBACK_KIND = RecordKind(TABLE, lambda _: THE_BROKER, lambda key, value: (key.decode(), _decode(value)))


class Callbacks:
    def __init__(self, state: State, streams: Streams) -> None:
        self._state = state
        self._streams = streams
        self._callbacks: dict[str, Callback] = {}

    def all(self) -> list[Callback]:
        return [self._callbacks[name] for name in sorted(self._callbacks)]

    def get(self, name: str) -> tuple[Callback, StreamLog] | None:
        """None if it has ended, or somebody has removed its stream."""
        found, log = self._callbacks.get(name), self._streams.get(name)
        return None if found is None or log is None else (found, log)

    def add(self, callback: Callback, now: Nanos) -> None:
        """One that has been verified: it begins, or is renewed. BadTopic or Unwelcome if its stream cannot be had."""
        name = callback.name
        if self._streams.get(name) is None:
            self._streams.create(name, callback.filter, Scope.EVERYWHERE, callback.user, False, now)
        self._callbacks[name] = callback
        self._state.batch.add(Save(TABLE, name.encode(), _encode(callback)))
        self._watch(callback)

    def remove(self, name: str, now: Nanos) -> bool:
        if self._callbacks.pop(name, None) is None:
            return False
        self._streams.remove(name, now)
        self._state.batch.add(Erase(TABLE, name.encode()))
        return True

    def _watch(self, callback: Callback) -> None:
        self._state.timers.at(callback.expires_ns, lambda now: self._look(callback, now))

    def _look(self, callback: Callback, now: Nanos) -> None:
        if self._callbacks.get(callback.name) is callback:
            self.remove(callback.name, now)

    # Recovery

    def restore(self, key: bytes, value: bytes) -> None:
        self._callbacks[key.decode()] = _decode(value)

    def recovered(self) -> None:
        for callback in self.all():
            self._watch(callback)
