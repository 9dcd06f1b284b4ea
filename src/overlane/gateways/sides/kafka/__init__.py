"""A side with Kafka. Only gateways to Kafka import it: it needs `overlane[kafka]`.

records.py    records as messages, and back; pure
commits.py    which offsets may be committed; pure
cluster.py    librdkafka's producer and consumer, and the threads that serve them
settings.py   what librdkafka is told of a gateway's table
"""

__all__: list[str] = []
