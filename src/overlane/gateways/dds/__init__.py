"""Gateways to DDS: two domains that cannot hear each other interoperate through the overlay.

routes.py     which topics cross: endpoints here, what other gateways have announced, what is to be opened; pure
samples.py    samples as messages, and DDS QoS as values; pure
domain.py     one DDS domain: discovery, readers and writers, in a thread of its own; needs `overlane[dds]`
running.py    a gateway that runs: the domain, the broker, and the routes between them
"""

__all__ = ["routes", "running", "samples"]
