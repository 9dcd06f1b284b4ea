"""Brokers in virtual time and a seeded network: the core alone, and whole brokers (`whole`).

    engine       virtual time: the queue of events
    garbage      when Python looks for garbage in a process that simulates
    random_streams  seeded randomness, one stream per purpose
    clock        the clock of a broker
    line         one direction of a link: delay, loss, order, rate
    link         a connection between two brokers: opening, breaking, dialling again
    host         drives one broker: turns, timer, durable store, crash and restart
    traffic      publishers
    judge        observes from outside and counts what arrived, when, how often
    run_log      records changes of the network and of routes
    subscribers  applications that subscribe and unsubscribe
    report       the results of a run
    setup        from a network file to brokers
    world        all of it, built from a network file
    story        the same for scenarios written in Python
    soak         random overlays and faults, and invariants
    reservation_network  reservations between many brokers, without messages of publishers
    whole        whole brokers with MQTT clients and disks, and a soak of them

Dependencies point upwards in this list. The same network and seed give the same digest on any machine: time is in whole
nanoseconds, randomness comes from seeded streams through exact arithmetic, and the order of sets has no effect.
"""

__all__ = [
    "garbage",
    "host",
    "items",
    "judge",
    "line",
    "link",
    "report",
    "reservation_network",
    "run_log",
    "setup",
    "soak",
    "traffic",
    "whole",
    "world",
]
