"""Brokers under virtual time and a seeded network: the core alone, and whole brokers (`whole`).

    engine      virtual time: what happens next
    luck        seeded randomness, one stream per purpose
    clock       what a broker takes for the time
    line        one direction of a link: delay, loss, order, rate
    link        a connection between two brokers: opening, breaking, dialling again
    host        drives one broker: turns, timer, durable store, crash and restart
    traffic     publishers
    judge       watches from outside and counts what arrived, when, how often
    chronicle   writes down what was done to the network and how routes answered
    audience    subscribers
    report      what a run came to
    setup       from a network file to brokers
    world       all of it, built from a network file
    story       the same for scenarios written in Python
    soak        random overlays and faults, and what must hold whatever happens
    whole       whole brokers with MQTT clients and disks, and a soak of them

Dependencies point upwards in this list. The same network and seed give the same digest on any machine: time is in whole
nanoseconds, randomness comes from seeded streams through exact arithmetic, and no set's order reaches anything.
"""
