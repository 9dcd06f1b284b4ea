"""Which addresses a callback may have: a broker must not be made to send requests into its own network.

Only addresses of the public internet are allowed, unless the network file names more (`[web] callback_networks`). An
IPv6 address that contains an IPv4 address counts as that address. The caller resolves a name once, checks all addresses
that it has, and connects to one of them: a name that changes in between gains nothing.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

from overlane.web.errors import BadWebRequest

URL_CHARS_MAX = 2_048
PORTS = {"http": 80, "https": 443}

_NAT64 = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")

Network = IPv4Network | IPv6Network


def split_callback(url: str) -> tuple[SplitResult, str, int]:
    """The parts of a callback's URL, its host and its port; BadWebRequest."""
    if len(url) > URL_CHARS_MAX or not url.isascii() or any(one <= " " or one == "\x7f" for one in url):
        raise BadWebRequest(f"hub.callback: expected a URL of at most {URL_CHARS_MAX} ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadWebRequest(f"hub.callback: {url[:60]!a} is no URL") from None
    if parts.scheme not in PORTS or not host:
        raise BadWebRequest("hub.callback: expected a URL that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise BadWebRequest("hub.callback: a URL with a user name is not allowed")
    if parts.fragment:
        raise BadWebRequest("hub.callback: a URL with a fragment is not allowed")
    return parts, host, PORTS[parts.scheme] if port is None else port


def is_allowed(address: str, networks: Sequence[Network] = ()) -> bool:
    """Whether a callback may be at this address; `networks` are allowed though they are not public."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    meant = _embedded(found) or found
    if any(meant.version == one.version and meant in one for one in networks):
        return True
    return meant.is_global and not meant.is_multicast and not meant.is_reserved


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to an IPv6 address end up at."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64 or address in _NAT64_LOCAL:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo is not None else None)
