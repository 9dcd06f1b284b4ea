"""SASL (part 5, section 5.3): which mechanisms a client is offered, and what it says with the one it chooses.

EXTERNAL    the client has shown a certificate: it is who that says
PLAIN       user name and password, as for MQTT; who that is gets found out elsewhere (`Authenticate`)
ANONYMOUS   where clients that name no user are let in
"""

from typing import NamedTuple

from overlane.amqp.codec.malformed import AmqpError, Malformed
from overlane.amqp.codec.performatives import SaslInit
from overlane.amqp.codec.types import Symbol
from overlane.pubsub.contract.consumer import Peer
from overlane.secret import Secret

EXTERNAL = "EXTERNAL"
PLAIN = "PLAIN"
ANONYMOUS = "ANONYMOUS"

OK = 0
AUTH_FAILED = 1
BUSY = 4
"""Outcomes: the last is a fault that may have gone when the client comes again."""

PLAIN_BYTES_MAX = 1_024


class Login(NamedTuple):
    """A user name and a password to be checked."""

    user: str
    password: Secret


class LoginRefused(AmqpError):
    """The client is not let in."""

    def __init__(self, told: str) -> None:
        super().__init__("amqp:unauthorized-access", told)


def offered(peer: Peer, may_be_anonymous: bool) -> tuple[str, ...]:
    mechanisms = [EXTERNAL] if peer.certified is not None else []
    mechanisms.append(PLAIN)
    if may_be_anonymous:
        mechanisms.append(ANONYMOUS)
    return tuple(map(Symbol, mechanisms))


def read_init(init: SaslInit, peer: Peer, may_be_anonymous: bool) -> Login | str | None:
    """Who the client is: a login to be checked, a user that the certificate names, or None for nobody. LoginRefused."""
    if init.mechanism not in offered(peer, may_be_anonymous):
        raise LoginRefused(f"the mechanism {init.mechanism[:40]} is not offered")
    if peer.certified is not None:
        return peer.certified  # whatever it says besides, as with MQTT
    if init.mechanism == ANONYMOUS:
        return None
    return _read_plain(init.initial_response or b"")


def _read_plain(response: bytes) -> Login:
    """Who it acts for, its name and its password, with zeros between them (RFC 4616)."""
    parts = response.split(b"\0")
    if len(response) > PLAIN_BYTES_MAX or len(parts) != 3:
        raise Malformed("the response to PLAIN is not a name and a password")
    acts_for, name, password = parts
    if acts_for not in (b"", name):
        raise LoginRefused("a client cannot act for another user")
    try:
        return Login(name.decode(), Secret(password))
    except UnicodeDecodeError:
        raise Malformed("a user name is not UTF-8") from None
