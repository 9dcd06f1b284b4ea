"""The limits of a broker: the resources that one client, and all of them together, can use.

Everything that grows with the input of others has a limit here, so that a client that floods, is slow or never reads
costs a known amount. Sizes are checked before anything is allocated; what is dropped or refused at a limit is counted.
Fields that allow `NONE` can be unlimited.
"""

import msgspec

from overlane.core.limits import FILTER_BYTES_MAX, FILTERS_MAX, fits
from overlane.pubsub.cluster.names import GROUP_BYTES_MAX, TOPIC_BYTES_MAX

NONE = 0
"""No limit, where a field allows that."""

EXPIRY_S_NEVER = 0xFFFF_FFFF
"""A session expiry of MQTT 5 that never comes, and as `session_expiry_s_max` no limit."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 20_000
    """Clients connected at once; more are refused with `server busy`."""

    connections_per_second: int = 1_000
    """New connections a second in the long run; as many again may come in one burst."""

    packet_bytes: int = 2**20
    """The largest packet of a client; sent to MQTT 5 clients as the maximum packet size."""

    packet_bytes_before_connect: int = 4_096
    """The largest CONNECT: before a client is known it cannot make the broker hold more than this."""

    connect_within_ns: int = 10 * 10**9
    """From the connection to the whole CONNECT, TLS and WebSocket handshakes included."""

    queue_messages: int = 10_000
    """Messages that wait for one client, connected or not."""

    queue_bytes: int = 16 * 2**20
    """Bytes of those messages; at least a packet, or the largest message could never wait."""

    in_flight: int = 100
    """QoS 1 and 2 messages in flight to or from one client; sent as the receive maximum."""

    user_properties: int = 32
    """User properties in one packet."""

    messages_per_second: int = NONE
    """Messages one client may publish a second; a faster one is read more slowly. `NONE` is no limit."""

    tries: int = 5
    """How often a message is sent to one client before it goes to the dead-letter topic."""

    keep_alive_s_max: int = NONE
    """The longest keep-alive; a longer one, or none, is replaced by it in MQTT 5. `NONE` is no limit."""

    session_expiry_s_max: int = 7 * 86_400
    """How long a session outlives its connection at most. A week lasts over a long weekend and yet ends the queues of
    clients that never come back, which 3.1.1 alone would keep for ever. `EXPIRY_S_NEVER` is no limit."""

    sessions: int = 100_000
    """Sessions, of clients that are there and of those that are away; beyond, none that is kept can be begun."""

    topic_aliases: int = 64
    """Topic aliases of one client in each direction; 0 is none at all."""

    subscriptions_per_client: int = 1_000
    """Subscriptions of one session."""

    filters: int = FILTERS_MAX
    """Different filters that all clients of the broker subscribe to: the other brokers keep them all."""

    filter_bytes: int = FILTER_BYTES_MAX
    """Bytes of those filters, under the names that the other brokers know them by."""

    retained_messages: int = 100_000
    """Retained messages of the broker; 0 refuses to retain."""

    retained_bytes: int = 256 * 2**20
    """Bytes of all retained messages."""

    filter_levels: int = 64
    """Levels of a topic or filter."""

    topic_bytes: int = 4_096
    """Bytes of a topic or filter, without the group of a shared subscription; at most `TOPIC_BYTES_MAX`, so that the
    overlay can carry it under every name that brokers make of it. Told to MQTT 5 clients."""

    streams: int = 100
    """Streams, and for each of them a hundred writers that are remembered."""

    stream_messages: int = 1_000_000
    """Messages in the log of one stream; the oldest make room for more."""

    stream_bytes: int = 64 * 2**20
    """Bytes of the log of one stream, which is in memory too."""

    stream_expiry_s: int = 7 * 86_400
    """A stream that is not read for this time is removed."""

    brokers: int = 1_024
    """Brokers of the overlay that are kept in mind beside those of the network file."""

    routes: int = NONE
    """Routes of a broker with several destinations, in each QoS class; messages of other topics share them."""

    store_bytes: int = NONE
    """How large the durable store may grow. `NONE` is as large as the disk."""

    def too_long(self, topic: str) -> str | None:
        """What is wrong with the length of a client's topic or filter, if anything."""
        if fits(topic, self.topic_bytes):
            return None
        return f"a topic or filter of {len(topic.encode())} bytes; at most {self.topic_bytes} are allowed"


def uncarriable(group: str, topic: str) -> str | None:
    """Why the overlay could not carry a topic, or the filter of a group (else ""); whatever the limits are now."""
    if not fits(group, GROUP_BYTES_MAX):
        return f"the name of a group of {len(group.encode())} bytes; at most {GROUP_BYTES_MAX} are allowed"
    if not fits(topic, TOPIC_BYTES_MAX):
        return f"a topic or filter of {len(topic.encode())} bytes; the overlay carries at most {TOPIC_BYTES_MAX}"
    return None
