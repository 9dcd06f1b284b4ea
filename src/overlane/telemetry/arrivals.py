"""Messages from other brokers, as they are delivered to clients: counted for the rates, and offered to the sample."""

from overlane.core.events import Deliver
from overlane.mqtt.arrival_counts import counted
from overlane.telemetry.deliveries import DeliverySample
from overlane.telemetry.topic_rates import TopicRates


class Arrivals:
    def __init__(self, rates: TopicRates, sample: DeliverySample) -> None:
        self._rates = rates
        self._sample = sample

    def delivered(self, effect: Deliver) -> None:
        for topic, messages, size_bytes in counted(effect):
            self._rates.tally(topic, messages, size_bytes)
            self._sample.offer(effect, topic, messages, size_bytes)
