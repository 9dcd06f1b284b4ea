"""Names of sessions that are not client identifiers.

All sessions of a broker are in one table. The names of some come from a protocol other than MQTT: connections, links
and queues of AMQP. A client that connects by one of these names would get that session, with its messages and, for a
queue, the rights of an operator. So no client identifier may begin like them.
"""

AMQP_LINK = "amqp/"
AMQP_QUEUE = "amqp-queue/"
AMQP_SHARED = "amqp-shared/"
"""Of connections and links, of queues, of shared subscriptions."""

PREFIXES = (AMQP_LINK, AMQP_QUEUE, AMQP_SHARED)


def is_reserved(client_id: str) -> bool:
    return client_id.startswith(PREFIXES)
