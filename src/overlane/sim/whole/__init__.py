"""Whole brokers under virtual time: MQTT clients, pubsub, the core, the turn, the commit; and a soak of them.

    disk       what a broker's store holds: written late, torn, full, broken, gone with the power
    wire       a client's connection to its broker
    client     an MQTT 5 client: persistent session, QoS 0 to 2, reconnects, resends
    broker     runs the turns of one broker on virtual time, with a disk, links and clients
    drawing    brokers, clients and faults of a seed
    judge      what clients were promised and what they got
    reconfiguring  brokers whose configuration changes while they run
    running    one seed from the first fault to the last probe, and many of them

Everything but the disk, the wires and the clients is the code of the broker that runs: `overlane.turn` and below it.
"""

from overlane.sim.whole.running import run_seed, run_seeds

__all__ = ["run_seed", "run_seeds"]
