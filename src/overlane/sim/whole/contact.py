"""The history of one connection of a client, as client and network saw it."""

from dataclasses import dataclass

from overlane.core.units import NEVER, Nanos


@dataclass(slots=True, eq=False)
class Contact:
    """Times are NEVER until they come. `number` counts the connections of a client, from 1."""

    client: str
    number: int
    asked_ns: Nanos
    """When CONNECT was sent."""
    keep_alive_ns: Nanos = NEVER
    will_delay_ns: Nanos = 0
    accepted_ns: Nanos = NEVER
    """When CONNACK had come."""
    heard_ns: Nanos = -NEVER
    """When the broker last took bytes of the client, or began to read again."""
    goodbye_ns: Nanos = NEVER
    """When DISCONNECT had reached the broker."""
    may_be_refused: bool = False
    """Whether a request had no answer when DISCONNECT was sent, and MQTT 3.1.1 has none for a refusal: then the broker
    may have ended the connection before."""
    ended_ns: Nanos = NEVER
    """When the connection broke, the broker closed it, or the broker was gone."""
    closed_ns: Nanos = NEVER
    """When the broker closed it, if it did."""
    silence_ns: Nanos = 0
    """For how long the broker had heard nothing then."""
    last_silence_ns: Nanos = 0
    """How long the last time was in which the broker heard nothing for as long as its keep-alive, or longer."""
    last_silence_ended_ns: Nanos = -NEVER
    owed_at_close: int = 0
    """Requests of the client that had no answer then."""
    was_silent: bool = False
    """Whether the client has said nothing for a while."""

    def hear(self, now: Nanos) -> None:
        """The broker takes bytes of the client."""
        if self.heard_ns > -NEVER and now - self.heard_ns >= self.keep_alive_ns:
            self.last_silence_ns, self.last_silence_ended_ns = now - self.heard_ns, now
        self.heard_ns = now
