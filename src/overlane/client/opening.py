"""`connect`: the options of a connection, validated and with defaults."""

import secrets
import ssl
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from overlane.client.address import parse_address
from overlane.client.address_book import AddressBook
from overlane.client.client import Client
from overlane.client.connecting import ConnectOptions
from overlane.client.errors import InvalidRequest
from overlane.client.message import Will, check_string
from overlane.client.protocol import SessionSettings
from overlane.client.qos import duration_ns, duration_s
from overlane.client.tls import Tls, as_tls
from overlane.core.units import SECOND, Nanos
from overlane.quantities import parse_size

if TYPE_CHECKING:
    from overlane.items.directory import At

SESSION_BRIDGE_S = 60
"""Default session expiry: long enough to bridge a lost connection."""
SESSION_FOREVER_S = 0xFFFF_FFFF


def connect(
    *addresses: str | Sequence[str],
    client_id: str | None = None,
    user: str | None = None,
    password: str | bytes | None = None,
    tls: bool | Tls | ssl.SSLContext | None = None,
    session_expiry: str | None = None,
    clean_start: bool | None = None,
    keep_alive: str = "30s",
    will: Will | None = None,
    connect_within: str = "10s",
    reconnect: bool = True,
    alternatives: bool = True,
    redirect: bool = False,
    pause_first: str = "100ms",
    pause_max: str = "15s",
    outbox_max: int = 10_000,
    outbox_size: str = "16MiB",
    in_flight_max: int = 1_000,
    packet_max: str = "16MiB",
    directory: bool = False,
) -> Client:
    """A client of the broker at the first of the addresses that answers; to be opened with `async with` or `await`.

    addresses       "host", "host:port", "[::1]:1883", "mqtts://host", one by one or as a list; tried in turn
    client_id       who one is to the broker; random if not given, and needed for a session that is to last
    user, password  how to prove it
    tls             True, or `Tls(ca=..., certificate=..., key=...)`, or an `ssl.SSLContext`
    session_expiry  how long the broker keeps subscriptions and undelivered messages of QoS 1 and 2 for this client when
                    it is away, such as "1h". If not given, a lost connection is bridged for a minute, and nothing
                    outlives `close`. "0s" bridges nothing
    clean_start     whether to begin without what the broker has kept; by default only without `session_expiry`
    keep_alive      after this time without a sign of life the connection counts as lost; "0s" turns it off
    will            what the broker publishes if this client is lost
    connect_within  how long an address has to answer; less after a lost connection, where there are others: a second at
                    first
    reconnect       whether to connect again after a lost connection
    alternatives    whether to try addresses that a broker has named, of other brokers of its domain, after these
    redirect        whether to connect to the broker that has the session, instead of having the connection passed on
    pause_first, pause_max    how long to wait before connecting again: doubling, half of it random
    outbox_max, outbox_size   how many messages, and how much, may wait to be sent before `publish` waits itself
    in_flight_max   how many messages of QoS 1 and 2 the broker may send ahead of acknowledgement
    directory       whether to follow the directory of items: publish to the primary broker of an item, to both if it is
                    critical, and switch when one fails
    packet_max      the largest packet taken from the broker; it does not send larger ones
    """
    named = [one for given in addresses for one in ([given] if isinstance(given, str) else given)]
    if not named:
        raise InvalidRequest('an address is required, such as "127.0.0.1:1883"')
    context, server_name = as_tls(tls)
    parsed = [parse_address(address, tls=context is not None) for address in named]
    if context is None and any(address.tls for address in parsed):
        context, server_name = as_tls(True)
    if session_expiry is not None and client_id is None and duration_s(session_expiry, "session_expiry"):
        raise InvalidRequest("a persistent session requires a client_id")
    if not 1 <= in_flight_max <= 65_535:
        raise InvalidRequest(f"got in_flight_max={in_flight_max}; expected 1 to 65535")
    if outbox_max < 1:
        raise InvalidRequest(f"got outbox_max={outbox_max}; expected 1 or more")
    for text in (client_id, user):
        check_string(text or "")
    settings = SessionSettings(
        client_id=client_id or f"overlane-{secrets.token_hex(8)}",
        user=user,
        password=password.encode() if isinstance(password, str) else password,
        clean_start=session_expiry is None if clean_start is None else clean_start,
        session_expiry_s=SESSION_BRIDGE_S if session_expiry is None else _session_s(session_expiry),
        keep_alive_s=_keep_alive_s(keep_alive),
        receive_max=in_flight_max,
        packet_bytes_max=_size(packet_max, "packet_max"),
        will=None if will is None else will.packet(),
        redirect=redirect,
        run=secrets.token_hex(8),
    )
    options = ConnectOptions(
        AddressBook(parsed, learns=alternatives),
        context,
        server_name,
        _above_0_ns(connect_within, "connect_within"),
        reconnect,
        _above_0_ns(pause_first, "pause_first"),
        _above_0_ns(pause_max, "pause_max"),
        redirect,
    )
    outbox_bytes_max, keep_session = _size(outbox_size, "outbox_size"), session_expiry is not None
    if not directory:
        return Client(
            settings, options, keep_session=keep_session, outbox_max=outbox_max, outbox_bytes_max=outbox_bytes_max
        )
    # Only where it is needed: most applications have no items.
    from overlane.client.items import ItemClient

    def make(at: "At") -> Client | None:
        """A client of one broker, as which this one has a session there."""
        address = at.clients.get("mqtt" if context is None else "mqtt_tls")
        if address is None:
            return None
        own = replace(
            settings, client_id=f"{settings.client_id}@{at.broker}", will=None, is_here=True, run=secrets.token_hex(8)
        )
        book = AddressBook([parse_address(address, tls=context is not None)], learns=False)
        quick = replace(options, addresses=book, follows=False, pause_max_ns=min(options.pause_max_ns, SECOND))
        return Client(own, quick, keep_session=keep_session, outbox_max=outbox_max, outbox_bytes_max=outbox_bytes_max)

    return ItemClient(
        settings, options, make, keep_session=keep_session, outbox_max=outbox_max, outbox_bytes_max=outbox_bytes_max
    )


def _session_s(session_expiry: str) -> int:
    # MQTT's largest number means for ever.
    return min(duration_s(session_expiry, "session_expiry"), SESSION_FOREVER_S)


def _above_0_ns(text: str, what: str) -> Nanos:
    duration = duration_ns(text, what)
    if duration <= 0:
        raise InvalidRequest(f"got {what}={text}; expected a value above 0")
    return duration


def _keep_alive_s(keep_alive: str) -> int:
    keep_alive_s = duration_s(keep_alive, "keep_alive")
    if keep_alive_s > 65_535:
        raise InvalidRequest(f"got keep_alive={keep_alive}; the maximum is 65535s")
    return keep_alive_s


def _size(text: str, what: str) -> int:
    try:
        size_bytes = parse_size(text)
    except ValueError as reason:
        raise InvalidRequest(f'got {what}={text!r} ({reason}); expected a size such as "16MiB"') from None
    if size_bytes <= 0:
        raise InvalidRequest(f"got {what}={text}; expected a value above 0")
    return size_bytes
