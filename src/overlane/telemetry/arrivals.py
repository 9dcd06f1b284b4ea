"""Messages of other brokers as they are handed to clients here: tallied for the rates, and shown to the sample.

What the overlay carries is not always one message of a topic: a run is many at once, a message for a shared
subscription goes by a name of its own, and retained messages that brokers exchange are for nobody in particular.
"""

from overlane.core.events import Deliver
from overlane.mqtt.elsewhere import RETAINED, SHARE, read_share_name
from overlane.mqtt.envelope import RUN, size_of_run
from overlane.telemetry.deliveries import DeliverySample
from overlane.telemetry.topicrates import TopicRates

PACKET_BYTES_MIN = 5
"""No PUBLISH packet is shorter: a run of so many bytes has at most so many of them, whatever it says."""


class Arrivals:
    def __init__(self, rates: TopicRates, sample: DeliverySample) -> None:
        self._rates = rates
        self._sample = sample

    def delivered(self, effect: Deliver) -> None:
        """Messages of one topic that follow each other are counted together: this is done for every message."""
        last, count, size_bytes = "", 0, 0
        for topic, flags, body in effect.messages:
            if topic is not last or flags & RUN:
                if count:
                    self._came(effect, last, count, size_bytes)
                last, count, size_bytes = topic, 0, 0
                if flags & RUN:
                    claimed, run_bytes = size_of_run(body)
                    self._came(effect, topic, max(1, min(claimed, run_bytes // PACKET_BYTES_MIN)), run_bytes)
                    continue
            count += 1
            size_bytes += len(body)
        if count:
            self._came(effect, last, count, size_bytes)

    def _came(self, effect: Deliver, topic: str, messages: int, size_bytes: int) -> None:
        if topic not in effect.subscribers:
            return
        if topic.startswith("$"):
            topic = told_topic(topic)
        if topic:
            self._rates.tally(topic, messages, size_bytes)
            self._sample.offer(effect, topic, messages, size_bytes)


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
