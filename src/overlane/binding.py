"""Listening sockets, bound before anything is served on them."""

import asyncio
import os
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
        raise Unavailable(f"{name} address {endpoint}", refusal_of(error)) from None
    return sockets


def refusal_of(error: OSError) -> str:
    """Why an address cannot be had, as the system says it: `create_server` repeats the address behind it."""
    is_of_system = error.errno is not None and not isinstance(error, socket.gaierror)
    return os.strerror(error.errno) if is_of_system and error.errno is not None else error.strerror or str(error)
