"""Open files: how many the system allows, and how many connections are possible with them."""

import resource
import sys

from overlane.pubsub.limits import NONE, Limits

FILES_KEPT = 256
"""Open files that are not connections of clients: the store, neighbours, operators, and rejected clients."""

FEW_CONNECTIONS = 4_000


def files_allowed() -> int:
    """How many files a broker may have open, once it has raised its own limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


def raise_file_limit() -> int:
    """To what the system allows; how many files may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return files_allowed()


def connections_possible(files_max: int) -> int:
    return max(1, files_max - FILES_KEPT)


def are_too_few(possible: int, wanted: int) -> bool:
    """Whether to warn. The default limit is for large machines: a little less of it is nothing to warn of."""
    is_default = wanted in (NONE, Limits().connections)
    return possible < wanted and (not is_default or possible < FEW_CONNECTIONS)
