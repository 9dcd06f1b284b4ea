"""A side with an AMQP 1.0 broker, by a client of our own (`overlane.amqp.client`).

addresses.py  names of topics as addresses of the foreign broker, and back; pure
content.py    messages as bytes of AMQP, and back; pure
side.py       connects, and decides what is accepted and what is rejected
"""

__all__: list[str] = []
