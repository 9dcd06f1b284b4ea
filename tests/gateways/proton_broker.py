"""A broker of AMQP 1.0 made with Qpid Proton, for tests: `proton_broker.py HOST:PORT [relay]`.

Every address is a queue. What is sent to `to/...` is put into the queue `echo`, under the address `from/...`. A message
is accepted when it is in its queue.
"""

import sys
from collections import defaultdict, deque
from typing import Any

sys.path.append("/usr/lib/python3/dist-packages")

from proton import symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Broker(MessagingHandler):  # type: ignore[misc]
    def __init__(self, address: str, has_relay: bool) -> None:
        super().__init__(prefetch=20, auto_accept=False)
        self.address = address
        self.has_relay = has_relay
        self.queues: defaultdict[str, deque[Any]] = defaultdict(deque)
        self.readers: list[Any] = []

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
        self.gone(event.link)

    def on_disconnected(self, event: Any) -> None:
        for link in [one for one in self.readers if one.connection == event.connection]:
            self.gone(link)

    def gone(self, link: Any) -> None:
        if link in self.readers:
            self.readers.remove(link)

    def on_sendable(self, event: Any) -> None:
        self.give(event.link)

    def on_message(self, event: Any) -> None:
        message = event.message
        queue = event.link.target.address or message.address
        if queue.startswith("to/"):
            message.address, queue = queue.replace("to/", "from/", 1), "echo"
            message.annotations = None
            # Otherwise the gateway would not take back what it has sent.
            message.properties = {name: value for name, value in message.properties.items() if name != "overlane-via"}
        self.queues[queue].append(message)
        self.accept(event.delivery)
        for link in self.readers:
            self.give(link)

    def give(self, link: Any) -> None:
        queue = self.queues[link.source.address]
        while queue and link.credit > 0:
            link.send(queue.popleft())


Container(Broker(sys.argv[1], sys.argv[2:] == ["relay"])).run()
