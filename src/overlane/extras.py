"""Extras: packages that only some commands and settings need, and how to install them."""

from importlib.util import find_spec

EXTRAS = {
    "telemetry": ("pyarrow",),
    "planning": ("highspy", "numpy", "scipy"),
    "pipeline": ("pandas", "pyspark"),
    "coordination": ("kazoo",),
    "mediation": ("cbor2",),
    "nats": ("nats",),
    "dds": ("cyclonedds",),
    "kafka": ("confluent_kafka",),
    "jwt": ("jwt",),
}
"""The packages that come with each extra, by the names under which they are imported."""


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def extra_with(package: str) -> str | None:
    """The extra that brings a package; None if it is a defect that the package is missing."""
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


def missing_extra(package: str, extra: str) -> str:
    """What is missing, and the line that adds it."""
    return f"the package {package} is missing; pip install 'overlane[{extra}]'"
