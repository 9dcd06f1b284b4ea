"""A broker of AMQP 1.0 made with Qpid Proton, for tests: `proton_broker.py HOST:PORT [relay]`.

What is sent to `to/...` is put into the queue `echo`, under the address `from/...`. A message is accepted when it is in
the queue, and leaves it when a reader has accepted it.
"""

import sys
from collections import deque
from typing import Any

sys.path.append("/usr/lib/python3/dist-packages")

from proton import symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Broker(MessagingHandler):  # type: ignore[misc]
    def __init__(self, address: str, has_relay: bool) -> None:
        super().__init__(prefetch=20, auto_accept=False, auto_settle=False)
        self.address = address
        self.has_relay = has_relay
        self.queue: deque[Any] = deque()
        self.readers: list[Any] = []
        self.given: dict[tuple[int, bytes], Any] = {}

    def on_start(self, event: Any) -> None:
        event.container.listen(self.address)

    def on_connection_opening(self, event: Any) -> None:
        if self.has_relay:
            event.connection.offered_capabilities = symbol("ANONYMOUS-RELAY")

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            link.source.address = link.remote_source.address
            self.readers.append(link)
        else:
            link.target.address = link.remote_target.address

    def on_link_closing(self, event: Any) -> None:
        if event.link in self.readers:
            self.readers.remove(event.link)

    def on_sendable(self, event: Any) -> None:  # noqa: ARG002
        self.give()

    def on_message(self, event: Any) -> None:
        message = event.message
        address = event.link.target.address or message.address
        message.address = address.replace("to/", "from/", 1)
        message.annotations = None
        # Otherwise the gateway would not take back what it has sent.
        message.properties = {name: value for name, value in message.properties.items() if name != "overlane-via"}
        self.queue.append(message)
        self.accept(event.delivery)
        self.give()

    def on_accepted(self, event: Any) -> None:
        self.given.pop((id(event.link), event.delivery.tag), None)
        event.delivery.settle()

    def give(self) -> None:
        for link in self.readers:
            while self.queue and link.credit > 0:
                link.send(self.queue.popleft())


Container(Broker(sys.argv[1], sys.argv[2:] == ["relay"])).run()
