"""Extras: packages that only some commands and settings need, and how to install them."""

EXTRAS = {
    "telemetry": ("pyarrow",),
    "planning": ("highspy", "numpy", "scipy"),
    "pipeline": ("numpy", "pandas", "pyarrow", "pyspark", "scipy"),
}
"""The packages of each extra that are looked for, by the names under which they are imported."""


def missing_extra(package: str, extra: str) -> str:
    """What is missing, and the line that adds it."""
    return f"the package {package} is missing; pip install 'overlane[{extra}]'"
