"""The turns of a broker: shared by the running broker and the simulator, without an event loop, a socket or a disk.

    turn           inputs, effects, one batch of records, the commit, and what waited for it
    reconfigure    a new configuration for a running broker
    assembly       a broker of a core, its servers for clients and its turns, from its records
    protocols      the table of client protocols
    uplink         the core, as these servers see it
    client_link    a client's connection: what waits to be sent on it, and when it is read from
    backpressure   clients that are not read from, since their messages have no room
    lingering      connections that the broker has ended and that are read to their end
    reserving      reservations between brokers: RSVP, joined with the core and with clients
    channel_review which routes messages share, where their number is limited; not imported by the others
    delays         how old messages with a reservation are when they arrive
    timers         the timers that these need of an event loop

`node` drives it with asyncio, sockets and SQLite, `sim` with virtual time, simulated links and a simulated disk.
"""

__all__ = [
    "assembly",
    "channel_review",
    "client_link",
    "lingering",
    "protocols",
    "reconfigure",
    "record_registry",
    "reserving",
    "timers",
    "turn",
]
