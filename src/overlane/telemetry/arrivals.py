"""Messages of other brokers as they are handed to clients here: tallied for the rates, and shown to the sample.

What the overlay carries is not always one message of a topic: a run is many at once, a message for a shared
subscription goes by a name of its own, and retained messages that brokers exchange are for nobody in particular.
"""

from overlane.core.events import Deliver
from overlane.mqtt.elsewhere import RETAINED, SHARE, read_share_name
from overlane.mqtt.envelope import RUN, unpack_run
from overlane.telemetry.deliveries import DeliverySample
from overlane.telemetry.topicrates import TopicRates

PACKET_BYTES_MIN = 5
"""No PUBLISH packet is shorter: a run of so many bytes has at most so many of them, whatever it says."""


class Arrivals:
    def __init__(self, rates: TopicRates, sample: DeliverySample) -> None:
        self._rates = rates
        self._sample = sample

    def delivered(self, effect: Deliver) -> None:
        subscribers, tally, offer = effect.subscribers, self._rates.tally, self._sample.offer
        for topic, flags, body in effect.messages:
            if topic not in subscribers:
                continue
            size_bytes = len(body)
            if topic.startswith("$"):
                topic = told_topic(topic)
                if not topic:
                    continue
            messages = 1
            if flags & RUN:
                run, claimed, _ = unpack_run(flags, body)
                size_bytes = len(run)
                messages = max(1, min(claimed, size_bytes // PACKET_BYTES_MIN))
            tally(topic, messages, size_bytes)
            offer(effect, topic, messages, size_bytes)


def told_topic(name: str) -> str:
    """The topic that the overlay's name for it stands for; empty if it is for no client."""
    if name.startswith(RETAINED):
        return ""
    if name.startswith(SHARE):
        try:
            return read_share_name(name)[3]
        except ValueError:
            return ""
    return name
