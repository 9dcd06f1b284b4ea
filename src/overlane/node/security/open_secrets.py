"""Secret files that others than their owner can read."""

from collections.abc import Iterator

from overlane.network.schema import Security
from overlane.secret_file import warning_of


def open_secrets(security: Security) -> Iterator[str]:
    """A warning for each of them."""
    for what, path in (
        ("the private key", security.key),
        ("the file of users", security.users),
        ("the admin token", security.admin_token),
        ("the overlay secret", security.overlay_secret),
    ):
        if path is not None and (warning := warning_of(path, what)) is not None:
            yield warning
