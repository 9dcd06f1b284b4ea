"""Convergence: after all faults have healed, brokers have the same state and nothing outstanding between them.

Control messages that were lost on a link arrive seconds after it has healed, by TCP's retransmission. Until then a
broker may not know of a subscription that another one has acknowledged, nor of its retained messages. So the guarantees
for a healed overlay apply only after it has converged, which it must do in time.
"""

from collections.abc import Mapping

from overlane.sim.soak.invariants import Broken
from overlane.sim.whole.broker import WholeBroker


def not_converged(brokers: Mapping[str, WholeBroker]) -> Broken | None:
    """What brokers do not agree on, or owe each other; all of them are running."""
    digests = {name: broker.turn.core.map_digest() for name, broker in brokers.items()}
    first = next(iter(digests))
    others = [name for name in digests if digests[name] != digests[first]]
    if others:
        return Broken(
            "all brokers see the same map and subscriptions", f"{', '.join(others)} see others than {first} does"
        )
    for name, broker in brokers.items():
        if owed := broker.turn.core.counters["retained_bytes"]:
            return Broken("every broker has what was published for it", f"{owed} bytes of {name} are not acknowledged")
    return None
