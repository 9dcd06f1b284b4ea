"""Limits of what brokers say to each other: each receiver refuses more, so each sender must never say more.

Lengths of texts are in bytes of UTF-8, as the wire counts them. What clients may say is bounded by these limits less
what a broker puts in front of it (`overlane.pubsub.cluster.names`).
"""

TOPIC_BYTES_MAX = 65_535
"""A topic or filter, whatever stands in front of it included: its length has 16 bits in a parcel."""

FILTERS_MAX = 1_000_000
FILTER_BYTES_MAX = 64 * 2**20
"""The filters that one broker needs, and their bytes."""

NEEDS_BYTES_MAX = 512 * 2**20
"""What all filters of all other brokers may take in memory."""

LABELS_MAX = 128
"""Different labels of QoS classes (`overlane.core.qos.label_of`): there are no more, whatever the deadlines are."""

_BYTES_PER_CHARACTER_MAX = 4


def fits(text: str, bytes_max: int) -> bool:
    """Whether a text takes at most so many bytes. It is encoded only if the number of characters does not decide."""
    if len(text) * _BYTES_PER_CHARACTER_MAX <= bytes_max:
        return True
    return len(text) <= bytes_max and len(text.encode()) <= bytes_max
