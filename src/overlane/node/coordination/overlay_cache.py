"""What a broker knows of its overlay, on disk: so that it starts and serves while ZooKeeper is away."""

import logging
from pathlib import Path

import msgspec

from overlane.coordination.view import Kept

FILE = "coordination.json"

log = logging.getLogger("overlane.coordination")


def read_kept(data: Path | None) -> Kept:
    """Nothing where there is no file; one that is damaged is reported, and everything comes from ZooKeeper again."""
    if data is None:
        return Kept()
    path = data / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return Kept()
    except (OSError, msgspec.DecodeError) as error:
        log.error("%s: %s; reading it from ZooKeeper again", path, error)
        return Kept()


def write_kept(data: Path, kept: Kept) -> None:
    """All or nothing. Where it cannot be written, that is reported: only the next start without ZooKeeper needs it."""
    path = data / FILE
    fresh = path.with_suffix(".new")
    try:
        fresh.write_bytes(msgspec.json.encode(kept))
        fresh.replace(path)
    except OSError as error:
        log.error("%s: %s", path, error)
