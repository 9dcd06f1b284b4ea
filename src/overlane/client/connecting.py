"""Connecting: opens a connection, waits until it is lost, pauses, and opens the next.

The addresses are tried in turn (`address_book`). The first round must succeed; otherwise the application gets the
reason for each address. After that, attempts continue without limit. Where there are several addresses, one that does
not answer soon gives way to the next: a host that has stopped accepts connections and never answers. Each round that
fails gives them twice as long, up to the time that the application allows.

A broker that is asked to may name the one that has the session: that is tried next, and if it cannot be reached, the
first is asked again and not to redirect.

A refusal that would only be repeated, such as a wrong password, ends the client. So does another client that takes over
the session: a reconnect would disconnect that client, and so on.
"""

import asyncio
import logging
import random
import ssl
from collections import deque
from dataclasses import dataclass
from typing import assert_never

from overlane.client.address import Address
from overlane.client.address_book import AddressBook
from overlane.client.backoff import PAUSE_FIRST, PAUSE_MAX, Backoff
from overlane.client.clocks import now_ns
from overlane.client.connection import explained, open_connection
from overlane.client.driver import Driver, Parting
from overlane.client.engine import Engine
from overlane.client.errors import BrokerViolation, ConnectionRefused, Disconnected, Unreachable, described
from overlane.client.protocol import ConnectionFailed, ServerDisconnected
from overlane.core.units import SECOND, Nanos

log = logging.getLogger("overlane.client")

PATIENCE_FIRST: Nanos = 1 * SECOND
"""How long an address has to answer in the first round after a lost connection, where there are others."""
REDIRECTS_MAX = 3
"""In one round of attempts."""
OTHER_SERVER_CODES = frozenset({0x8B, 0x9C, 0x9D})
"""Shutting down, use another broker, broker moved: try the others first."""
TEMPORARY_CODES = frozenset({0x00, 0x80, 0x83, 0x88, 0x89, 0x8D, 0x96, 0x97, 0x98, 0x9F, 0xA0}) | OTHER_SERVER_CODES
"""Reasons that may be gone the next time. All others would only be repeated."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Addresses of the brokers, TLS, and the timing of reconnection."""

    addresses: AddressBook
    context: ssl.SSLContext | None
    server_name: str | None
    within_ns: Nanos
    reconnect: bool
    pause_first_ns: Nanos = PAUSE_FIRST
    pause_max_ns: Nanos = PAUSE_MAX
    follows: bool = False
    """Whether to go where a broker refers to."""


async def stay_connected(engine: Engine, options: ConnectOptions) -> None:
    """Never returns; raises what makes another attempt pointless."""
    addresses = options.addresses
    backoff = Backoff(options.pause_first_ns, options.pause_max_ns)
    patience_ns = options.within_ns
    while True:
        address, tried = await _first_that_answers(engine.driver, options, patience_ns)
        if address is None:
            unreachable = Unreachable(tried)
            engine.last_error = str(unreachable)
            if not engine.connections:
                raise unreachable
            log.info("%s", unreachable)
            patience_ns = min(2 * patience_ns, options.within_ns)
        else:
            log.info("connected to %s", address)
            addresses.connected(address, engine.alternatives)
            began = now_ns()
            parting = await engine.driver.parting()
            engine.driver.drop_connection()
            backoff.held(now_ns() - began)
            addresses.parted(
                is_sent_away=isinstance(parting, ServerDisconnected) and parting.code in OTHER_SERVER_CODES
            )
            reason = _judged(str(address), parting)
            engine.last_error = f"{address}: {reason}"
            if not options.reconnect:
                raise Unreachable([(str(address), reason)])
            log.warning("lost the connection to %s: %s; reconnecting", address, reason)
            has_others = len(addresses.in_order()) > 1
            patience_ns = min(PATIENCE_FIRST, options.within_ns) if has_others else options.within_ns
        await asyncio.sleep(backoff.pause(random.random()) / SECOND)


async def _first_that_answers(
    driver: Driver, options: ConnectOptions, patience_ns: Nanos
) -> tuple[Address | None, list[tuple[str, str]]]:
    tried: list[tuple[str, str]] = []
    pending = deque(options.addresses.in_order())
    redirects = 0
    referred_by: Address | None = None
    while pending:
        address = pending.popleft()
        try:
            async with asyncio.timeout(patience_ns / SECOND):
                context = options.context if address.tls else None
                connection = await open_connection(address, context, options.server_name, driver)
                await driver.greet(connection, is_redirected=redirects < REDIRECTS_MAX)
            return address, tried
        except ConnectionRefused as refused:
            driver.drop_connection()
            if refused.code not in TEMPORARY_CODES:
                raise ConnectionRefused(f"connection to {address}", refused.code, refused.words) from None
            tried.append((str(address), refused.reason))
            target = options.addresses.referred(address, refused.reference)
            if target is not None and options.follows and redirects < REDIRECTS_MAX:
                redirects, referred_by = redirects + 1, address
                pending.appendleft(target)
                continue
        except (OSError, ssl.SSLError) as error:  # TimeoutError is an OSError
            driver.drop_connection()
            tried.append((str(address), explained(error)))
        except UnicodeError:
            tried.append((str(address), "not a host name"))
        if referred_by is not None:
            redirects = REDIRECTS_MAX
            pending.appendleft(referred_by)
            referred_by = None
    return None, tried


def _judged(address: str, parting: Parting) -> str:
    """What happened, for people; raises if it would only happen again."""
    match parting:
        case ServerDisconnected(code, words):
            if code not in TEMPORARY_CODES:
                raise Disconnected(f"connection to {address}", code, words)
            return described(code, words)
        case ConnectionFailed(reason, is_violation):
            if is_violation:
                raise BrokerViolation(f"{address}: {reason}")
            return reason
        case str():
            return parting
        case _:
            assert_never(parting)
