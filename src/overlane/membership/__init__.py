"""Who is in the overlay, where each broker is reached, and which links exist: a value, wherever it comes from.

endpoint       a host and a port
membership     the value: members and links
changes        what differs between two memberships, and how a change is applied to a third
neighbours     what a membership means for one broker: its neighbours, and how they differ from those of before

The network file is one source (`overlane.network.members`). Nothing here reads a file, a clock or a socket.
"""
