"""HTB classes: commands that keep the rates of marked links free on an interface of a host.

A broker decides what leaves first on its links. It does not see what other programs of the host send. Linux does: a
class of its hierarchical token bucket (tc-htb) for each code point gets the rates of all links with it before
everything else, and may borrow what others leave. Filters find packets by their code point, in IPv4 and IPv6.

    root 1: -- 1:1 the interface -- 1:2   everything else, with what is left
                                 -- 1:XX  links marked with code point XX (hexadecimal)
"""

from overlane.network.schema import Network

OTHERS = 2
FIRST_CODE_POINT_CLASS = 0x10
OTHERS_BPS_MIN = 100_000
"""What is left to others: enough to log in."""


def htb_commands(network: Network, broker: str, device: str, device_bps: int) -> list[str]:
    """For the host of a broker, whose interface sends so many bits per second; ValueError if there is nothing to keep
    free, or no room for it."""
    rates = marked_rates(network, broker)
    if not rates:
        raise ValueError(f"{broker} has no link with both rate and dscp")
    left_bps = device_bps - sum(rates.values())
    if left_bps < OTHERS_BPS_MIN:
        raise ValueError(
            f"the marked links of {broker} have {sum(rates.values()):,} bit/s together;"
            f" got an interface of {device_bps:,} bit/s; expected at least {OTHERS_BPS_MIN:,} more than that"
        )
    add = f"tc class add dev {device}"
    commands = [
        f"tc qdisc replace dev {device} root handle 1: htb default {OTHERS}",
        f"{add} parent 1: classid 1:1 htb rate {device_bps}bit",
        f"{add} parent 1:1 classid 1:{OTHERS} htb rate {left_bps}bit ceil {device_bps}bit prio 1",
    ]
    for dscp, rate_bps in sorted(rates.items()):
        number = f"1:{FIRST_CODE_POINT_CLASS + dscp:x}"
        commands.append(f"{add} parent 1:1 classid {number} htb rate {rate_bps}bit ceil {device_bps}bit prio 0")
        for place, (protocol, match) in enumerate((("ip", "ip dsfield"), ("ipv6", "ip6 priority")), 1):
            commands.append(
                f"tc filter add dev {device} parent 1: protocol {protocol} prio {place}"
                f" u32 match {match} {dscp << 2:#04x} 0xfc flowid {number}"
            )
    return commands


def marked_rates(network: Network, broker: str) -> dict[int, int]:
    """Bits per second of the links of a broker, by code point."""
    found: dict[int, int] = {}
    for link in network.links:
        rate_bps = link.from_end(broker).rate_bps
        if broker in link.ends and link.dscp and rate_bps is not None:
            found[link.dscp] = found.get(link.dscp, 0) + rate_bps
    return found
