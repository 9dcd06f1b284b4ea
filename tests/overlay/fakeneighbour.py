"""A test that plays a neighbour of a running broker."""

import os
import socket
import threading
from contextlib import suppress

from overlane.core.wire import frame_codec
from overlane.core.wire.frame_codec import FrameType
from overlane.node.links.greeting import Credentials, Greeting
from overlays import Member


def dial(member: Member) -> socket.socket:
    host, port = member.overlay.split(":")
    return socket.create_connection((host, int(port)), 5)


def greet(member: Member, name: str, wanted: str) -> socket.socket:
    """A connection to a broker that takes us for this neighbour."""
    greeting = Greeting(Credentials(name, None, None, True), os.urandom(16), wanted)
    connection = dial(member)
    connection.sendall(greeting.opening())
    while not greeting.is_done:
        answer, _ = greeting.receive(connection.recv(4096))
        connection.sendall(answer)
    return connection


def answer_pings(connection: socket.socket) -> threading.Thread:
    """In a thread of its own, until the connection ends; so the broker takes us for a neighbour that lives."""

    def read() -> None:
        unread = b""
        with suppress(OSError):
            while data := connection.recv(65_536):
                frames, taken = frame_codec.split(unread + data)
                pongs = b"".join(
                    frame_codec.pong(frame_codec.read_token(body)) for kind, body in frames if kind == FrameType.PING
                )
                unread = (unread + data)[taken:]
                if pongs:
                    connection.sendall(pongs)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
