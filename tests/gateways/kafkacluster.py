"""The mock cluster of librdkafka, for tests: its brokers can be taken down, and made to answer with errors."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

WITHIN_S = 60.0
PRODUCE, OFFSET_COMMIT = 0, 8  # keys of requests in Kafka's protocol


def _library() -> ctypes.CDLL:
    """The one that the package brings; importing the package has loaded it."""
    found = list((Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    library = ctypes.CDLL(str(found[0]))
    for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class KafkaCluster:
    """One broker. Topics are made when something is produced to them."""

    def __init__(self) -> None:
        self._library = _library()
        self._client = ctypes.c_void_p(self._library.rd_kafka_new(0, None, None, 0))
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, 1))
        self.servers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def down(self) -> None:
        self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def up(self) -> None:
        self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def make_topic(self, name: str, partitions: int) -> None:
        self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)

    def fail(self, request: int, *codes: int) -> None:
        """The next requests of this kind are answered with these errors."""
        self._library.rd_kafka_mock_push_request_errors(
            self._cluster, ctypes.c_short(request), ctypes.c_size_t(len(codes)), *(ctypes.c_int(one) for one in codes)
        )

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def producer(self) -> confluent_kafka.Producer:
        return confluent_kafka.Producer({"bootstrap.servers": self.servers, "log_level": 0})

    def produce(self, topic: str, *values: str, key: bytes | None = None) -> None:
        producer = self.producer()
        for value in values:
            producer.produce(topic, value.encode(), key)
        assert producer.flush(WITHIN_S) == 0

    @contextmanager
    def reader(self, *topics: str) -> Iterator[confluent_kafka.Consumer]:
        """Of everything in the topics, from the start."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.servers, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe(list(topics))
        try:
            yield consumer
        finally:
            consumer.close()


def read(consumer: confluent_kafka.Consumer, count: int) -> list[confluent_kafka.Message]:
    """The next records."""
    found: list[confluent_kafka.Message] = []
    for _ in range(round(WITHIN_S / 0.5)):
        found += [one for one in consumer.consume(count - len(found), 0.5) if one.error() is None]
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} records of {count}")
