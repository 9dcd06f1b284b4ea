"""Messages from other brokers, as they are delivered to clients: counted for the rates, and offered to the sample."""

from overlane.mqtt.arrival_counts import Tally
from overlane.telemetry.deliveries import DeliverySample
from overlane.telemetry.topic_rates import TopicRates


class ArrivalCounter:
    def __init__(self, rates: TopicRates, sample: DeliverySample) -> None:
        self._rates = rates
        self._sample = sample

    def delivered(self, tally: Tally) -> None:
        effect = tally.effect
        for topic, messages, size_bytes in tally.together:
            self._rates.tally(topic, messages, size_bytes)
            self._sample.offer(effect, topic, messages, size_bytes)
        for topics, sizes in tally.mixed:
            self._rates.tally_mixed(topics, sizes)
            self._sample.offer_mixed(effect, topics, sizes)
