"""Who asks: the same users, certificates and anonymous clients as of MQTT.

A web page must not use the broker through the browser of somebody who can reach it. So a request that a page of another
origin makes is answered only if the file lists the origin; and an anonymous client that is trusted for its loopback
address has to name the broker by an address or localhost, and not by a name that DNS could map to it.
"""

from typing import NamedTuple, assert_never

from starlette.requests import Request

from overlane.adminapi.http_access import credentials, is_address
from overlane.network.schema import ANY_ORIGIN
from overlane.node.driver import Driver
from overlane.node.security.logins import Login, LoginClient
from overlane.node.web.connections import PEER
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.protocol import may_be_anonymous
from overlane.pubsub.contract.questions import LOGIN_BUSY, LOGIN_UNAVAILABLE
from overlane.pubsub.counters import Refusal
from overlane.secret import Secret
from overlane.web.errors import BadWebRequest


class Caller(NamedTuple):
    """`user` None: an anonymous client."""

    user: str | None
    peer: Peer


class WebAccess:
    def __init__(self, driver: Driver, origins: tuple[str, ...]) -> None:
        self._driver = driver
        self._origins = frozenset(origins)

    async def identify(self, request: Request) -> Caller:
        """BadWebRequest with the status 401, 403, 421 or 503."""
        state, peer = self._driver.server.state, request.scope[PEER]
        assert isinstance(peer, Peer)
        self._check_origin(request)
        given = credentials(request) or _token(request)
        if given is None and peer.certified is not None:
            return Caller(peer.certified, peer)
        logins = self._driver.logins
        if given is None or logins is None:
            if not may_be_anonymous(state, peer):
                raise self._refused("a user name and password, or a certificate, is needed", peer)
            if state.settings.anonymous is None and not is_address(request.headers.get("host", "")):
                raise BadWebRequest("the host of an anonymous request must be an address or localhost", 421)
            return Caller(peer.certified, peer)
        login, user, _ = await logins.log_in(*given, LoginClient(address=peer.address, listener=peer.listener))
        match login:
            case Login.ACCEPTED:
                return Caller(user, peer)
            case Login.REFUSED:
                raise self._refused("user name or password are wrong", peer)
            case Login.BUSY:
                raise BadWebRequest(LOGIN_BUSY, 503)
            case Login.UNAVAILABLE:
                raise BadWebRequest(LOGIN_UNAVAILABLE, 503)
            case _:
                assert_never(login)

    def _check_origin(self, request: Request) -> None:
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin is None or ANY_ORIGIN in self._origins or origin.lower() in self._origins:
            return
        if origin.partition("://")[2].lower() != host.lower():
            raise BadWebRequest(f"pages of {origin[:100]!a} may not use this broker; see origins in [web]", 403)

    def _refused(self, told: str, peer: Peer) -> BadWebRequest:
        self._driver.server.state.refuse(Refusal.CREDENTIALS, f"{told}, from {peer.address}")
        self._driver.end_turn_soon()
        return BadWebRequest(told, 401)


def _token(request: Request) -> tuple[str, Secret] | None:
    """A JSON Web Token, which names the user."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return ("", Secret(given.strip().encode())) if scheme.lower() == "bearer" else None
