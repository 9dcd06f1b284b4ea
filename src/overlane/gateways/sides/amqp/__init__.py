"""A side with an AMQP 1.0 broker, by the codec of Overlane's own AMQP listener.

addresses.py  names of topics as addresses of the foreign broker, and back; pure
content.py    messages as bytes of AMQP, and back; pure
client.py     a client of AMQP 1.0 as a state machine: bytes in, events and bytes out; pure
contract.py   what it is told, and what happens at it
sending.py    what it sends: links, credit, the window of the session, outcomes; pure
links.py      its links: what waits for credit, what is not settled; pure
side.py       connects, and drives the client
"""

__all__: list[str] = []
