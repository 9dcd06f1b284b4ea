"""Listening sockets, bound before anything is served on them."""

import asyncio
import socket

from overlane.errors import Unavailable
from overlane.network.schema import Endpoint


async def bound(name: str, endpoint: Endpoint, backlog: int) -> list[socket.socket]:
    """One for each address that the host means; Unavailable, with the name of the listener, if one cannot be had."""
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            sockets.append(socket.create_server(address, family=family, backlog=backlog))
    except OSError as error:
        for one in sockets:
            one.close()
        reason = error.strerror or str(error)
        raise Unavailable(f"{name} address {endpoint}", reason) from None
    return sockets
