"""Whole brokers in virtual time: MQTT clients, pubsub, the core, the turn, the commit; and a soak of them.

    disk       the content of a broker's store: delayed writes, torn writes, a full or broken disk, power failures
    wire       a client's connection to its broker
    contact    the history of one connection
    message    messages that name their publisher, and the interface of their observers
    habits     how a client connects: version, keep-alive, will
    client     an MQTT client: QoS 0 to 2, reconnects, retransmissions, pings
    broker     runs the turns of one broker in virtual time, with a disk, links and clients
    drawing    brokers, clients and faults of a seed
    judge      compares what clients were promised with what they received
    rules/     the same for retained messages, wills, shared subscriptions and keep-alive
    convergence  when brokers have the same state, and nothing outstanding between them
    running    one seed from the first fault to the last probe, and many of them
    tiers      the same for edges and routing brokers, whose bundles move
    domain     the same for brokers that share their clients
    ensemble   ZooKeeper servers in virtual time: they lag, lose answers, and let sessions expire
    coordinated  edges and routing brokers that find each other, and elect who assigns bundles, through such servers
    reconfiguring  brokers whose configuration changes while they run

Everything but the disk, the wires and the clients is the code of the running broker: `overlane.turn` and below it.
"""

from overlane.sim.whole.coordinated import run_seeds as run_coordinated_seeds
from overlane.sim.whole.domain import run_seeds as run_domain_seeds
from overlane.sim.whole.running import run_seed, run_seeds
from overlane.sim.whole.tiers import run_seeds as run_tier_seeds

__all__ = ["run_coordinated_seeds", "run_domain_seeds", "run_seed", "run_seeds", "run_tier_seeds"]
