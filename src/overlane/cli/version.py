"""`overlane version`."""

from overlane.build_kind import version_text


def version() -> None:
    """Print the version."""
    print(version_text())
