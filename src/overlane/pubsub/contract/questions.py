"""Questions to the driver: who a client is, at which broker its session is, what a function of the user returns.

They join `State.questions` during a turn, the driver finds the answers, and gives them to the client's link, or to
mediation.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from overlane.core.units import Nanos
from overlane.mediation.functions import FunctionMessage
from overlane.pubsub.contract.connection import ClientConnection
from overlane.secret import Secret

if TYPE_CHECKING:
    from overlane.pubsub.sessions.lookup import Found


TOKEN_START = b"eyJ"
"""A JSON Web Token begins like this: a JSON object in base64."""


class LoginVerdict(Enum):
    """What was found out about a client that named a user, or has a key of one."""

    IS_USER = "it is the user it names"
    IS_ANONYMOUS = "no user names are known here: it is like one that names none"
    IS_NOT = "it is not the user it names"
    BUSY = "too many ask at once; it may come again"
    UNAVAILABLE = "the service that knows does not answer, or not as it should; it may come again"


LOGIN_BUSY = "too many logins at once; try again"
LOGIN_UNAVAILABLE = "the login service of this broker does not answer; try again later"
"""Error texts for clients."""


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Authenticate the client; answer with `ProtocolServer.authenticated`."""

    connection: ClientConnection
    user: str
    """Empty: the password has to say it."""
    password: Secret
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class AuthenticateKey:
    """Find out whose public key it is, and whether the client has signed the challenge with it; answer with
    `ProtocolServer.authenticated`, with the user."""

    connection: ClientConnection
    nkey: str
    """As NATS writes public keys of users: `U` and 55 characters of base 32."""
    challenge: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Placed:
    """The search for a client's session has ended; answer with `ProtocolServer.placed`."""

    connection: ClientConnection
    found: "Found"


@dataclass(frozen=True, slots=True)
class PassOn:
    """Pass the connection on to the broker that has the session: begin with `Server.passing_on`, or say
    `Server.cannot_pass_on`. MQTT's: other protocols have no sessions that clients look for anywhere in a domain."""

    connection: ClientConnection
    broker: str
    user: str | None
    """Who the client was found to be."""
    connect: bytes
    """CONNECT, without a password."""


@dataclass(frozen=True, slots=True)
class CallFunction:
    """Call a function of the user with a message; answer with `Mediating.returned`, in the order of the calls."""

    number: int
    function: str
    within_ns: Nanos
    message: FunctionMessage


Question = Authenticate | AuthenticateKey | Placed | PassOn | CallFunction
