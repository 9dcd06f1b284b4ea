"""A client of AMQP 1.0 as a state machine, for gateways and links that a foreign broker carries.

contract.py   what it is told, and what happens at it
client.py     opening, receivers, deliveries: bytes in, events and bytes out
sending.py    what it sends: links, credit, the window of the session, outcomes
links.py      its links: what waits for credit, what is not settled
"""

__all__ = ["client", "contract"]
