"""Tables of bench/chain.py, like those of `_broker_tables`, and whether its targets are met."""

from collections.abc import Mapping

from _broker_tables import (
    LATENCY,
    MOSQUITTO,
    NATS,
    STREAM,
    Columns,
    against,
    as_fast_as,
    as_soon_as_the_best,
    number,
    spread,
    worst,
)
from _turns import Found

LEAST_OF = {MOSQUITTO: 2.5, NATS: 0.5}
"""At 64 bytes and QoS 0."""
MOSQUITTO_KEEPING = "Mosquitto, no sync"

COLUMNS: dict[str, Columns] = {
    "small": STREAM,
    "large": STREAM,
    "latency": {**LATENCY, "lost": worst("lost", "{:.2%}")},
    "durable": {
        "delivered/s": number("delivered_per_second"),
        "least - most": spread("delivered_per_second"),
        "x Mosquitto": against(MOSQUITTO_KEEPING, "delivered_per_second"),
        "acknowledged/s": number("per_second"),
        "of it lost": worst("lost", "{:.2%}"),
        "out of order": worst("disorder", "{:.0f}"),
        "CPU ns each": number("cpu_ns"),
    },
    "failover": {
        "first after": number("first_ms"),
        "least - most": spread("first_ms"),
        "longest silence": worst("silence_ms", "{:,.0f}"),
        "lost, messages": worst("lost", "{:.0f}"),
        "out of order": worst("disorder", "{:.0f}"),
    },
}


def aims(results: Mapping[str, Found]) -> dict[str, bool]:
    """What is aimed at, as far as it was measured, and whether it was reached."""
    return as_fast_as(LEAST_OF, results.get("small", {})) | as_soon_as_the_best(results.get("latency", {}))
