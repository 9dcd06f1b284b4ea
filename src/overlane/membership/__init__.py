"""Membership: the brokers of an overlay, their addresses and the links between them, as a value from any source.

    endpoint       a host and a port
    carrier        a broker that carries a link
    membership     the value: members and links
    changes        the difference between two memberships, and how it is applied to a third
    neighbours     the neighbours of one broker in a membership, and how they differ from those before

The network file is one source (`overlane.network.members`). Nothing here reads a file, a clock or a socket.
"""

__all__ = ["carrier", "changes", "endpoint", "membership", "neighbours"]
