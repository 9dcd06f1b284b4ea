"""The configuration that a broker without a file starts with: ZooKeeper's, or the last that it has known."""

import logging
from pathlib import Path

from overlane.coordination.access import access_of
from overlane.coordination.client import coordination_client
from overlane.coordination.records import CONFIG, ConfigRecord, MalformedRecord, decode
from overlane.errors import ConfigError, Unavailable
from overlane.network.schema import Network
from overlane.node.coordination.options import Own
from overlane.node.coordination.overlay_cache import read_kept
from overlane.node.coordination.own_network import own_network

PATIENCE_S = 5.0
"""How long a broker waits for ZooKeeper that can start without."""
TOLD_EVERY_S = 10.0

log = logging.getLogger("overlane.coordination")


async def first_network(own: Own, data: Path | None) -> tuple[Network, ConfigRecord | None]:
    """And what it was made of; None: nothing has been pushed. ConfigError. Waits for ZooKeeper as long as it takes
    where nothing is known from an earlier life."""
    kept = read_kept(data).config
    while True:
        try:
            config = await _read_config(own, data, PATIENCE_S if kept is not None else TOLD_EVERY_S)
        except Unavailable as error:
            if kept is None:
                log.warning("%s; the broker waits for it", error)
                continue
            log.warning("%s; the broker starts with its copy of configuration %d", error, kept.version)
            return own_network(kept, own), kept
        except MalformedRecord as error:
            if kept is None:
                raise
            log.error("%s; continuing with configuration %d", error, kept.version)
            return own_network(kept, own), kept
        try:
            return own_network(config, own), config
        except ConfigError as error:
            if kept is None or kept == config:
                raise
            log.error("continuing with configuration %d: %s", kept.version, error)
            return own_network(kept, own), kept


async def _read_config(own: Own, data: Path | None, patience_s: float) -> ConfigRecord | None:
    """Unavailable or MalformedRecord; None where nothing has been pushed."""
    async with coordination_client(
        access_of(own.zookeeper, data.parent if data is not None else None), patience_s
    ) as session:
        node = await session.read(CONFIG)
    if node is None:
        log.warning("no configuration has been pushed; using the defaults (overlane config push FILE)")
        return None
    return decode(CONFIG, node.data, ConfigRecord)
