"""TUN devices inside network namespaces: packets sent there are read from a file descriptor, and vice versa.

A device belongs to the namespace in which it was opened, and exists as long as its descriptor: when the process ends,
the device is gone.
"""

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from overlane.errors import Unavailable

DEVICE = Path("/dev/net/tun")

_TUNSETIFF = 0x400454CA
_TUNSETCARRIER = 0x400454E2
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_CLONE_NEWNET = 0x40000000
_HERE = "/proc/thread-self/ns/net"

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: Path) -> Iterator[None]:
    """This thread, and no other, is in the namespace meanwhile: sockets made now stay there."""
    before = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = _opened(namespace)
        try:
            _enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def open_tun(namespace: Path, name: str) -> int:
    """A new device of this name in the namespace: its descriptor, which does not block. Unavailable."""
    with inside(namespace):
        try:
            descriptor = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
        except OSError as error:
            raise Unavailable(f"TUN device {name}", error.strerror or str(error)) from None
    return descriptor


def set_carrier(descriptor: int, is_on: bool) -> None:
    """Whether the device's cable, so to speak, is plugged in: its namespace sees it."""
    fcntl.ioctl(descriptor, _TUNSETCARRIER, struct.pack("i", is_on))


def _opened(namespace: Path) -> int:
    try:
        return os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"network namespace {namespace.name}", error.strerror or str(error)) from None


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise Unavailable("a network namespace", os.strerror(ctypes.get_errno()))
