"""Reloading: the network file is read again while the broker runs.

Everything is read and checked first: the file, the certificates, the token, the users. If anything is invalid, nothing
changes. These can change while running: users, certificates of listeners and links, the admin token, access rules,
limits, the QoS of topics, the amount of telemetry kept, links. Other changes need a restart, and are reported.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from overlane.network.endpoints import Endpoints, endpoints
from overlane.network.listeners import LISTENER_KINDS
from overlane.network.schema import Network
from overlane.node.admin.service import token_of
from overlane.node.security.logins import LoginFiles, read_login_files
from overlane.node.security.tls import link_contexts, server_context
from overlane.secret import Secret
from overlane.secret_file import read_token


@dataclass(frozen=True, slots=True)
class ReloadedConfig:
    """The network file as it is now, and the files that it names."""

    network: Network
    token: Secret | None
    tls: ssl.SSLContext | None
    login_files: LoginFiles


def reload_config(read: Callable[[], Network], at: Endpoints) -> ReloadedConfig:
    """ConfigError or Unavailable if anything is wrong. `at`: where the broker listens, and goes on listening."""
    network = read()
    link_contexts(network.security)
    if (secret := network.security.overlay_secret) is not None:
        read_token(secret)
    return ReloadedConfig(
        network,
        token_of(network),
        server_context(network.security) if needs_tls(at) else None,
        read_login_files(network.security),
    )


def needs_tls(at: Endpoints) -> bool:
    """Whether clients connect to one of the listeners by TLS."""
    return any(kind.is_tls and kind.name in at.listeners for kind in LISTENER_KINDS)


def with_fixed_part(new: Network, started: Network) -> Network:
    """The new file, with the QoS that takes a restart as in the file that the broker has started with."""
    history = {topic.filter: topic.history for topic in started.topics if topic.history}
    topics = {topic.filter: structs.replace(topic, history=history.get(topic.filter, 0)) for topic in new.topics}
    gone = [topic for topic in started.topics if topic.filter in history and topic.filter not in topics]
    fixed: Network = structs.replace(new, topics=(*topics.values(), *gone), defaults=started.defaults)
    return fixed


def needs_restart(old: Network, new: Network, name: str, file: Path) -> list[str]:
    """Changes of the file that need a restart."""
    found = []
    mine = [broker for network in (old, new) for broker in network.brokers if broker.name == name]
    if name not in [broker.name for broker in new.brokers]:
        found.append(f"{name} is gone from the file")
    elif endpoints(new, name, str(file)) != endpoints(old, name, str(file)):
        found.append("addresses")
    if len({broker.datagrams for broker in mine}) > 1:
        found.append("datagrams")
    if new.defaults != old.defaults:
        found.append("[network]")
    if new.federation != old.federation:
        found.append("[[federation]]")
    if len({broker.failure for broker in mine}) > 1:
        found.append(f"failure of {name}")
    if _between_brokers(new) != _between_brokers(old):
        found.append("security of links")
    if new.limits.store_bytes != old.limits.store_bytes:
        found.append("limits.store")
    if new.telemetry.enabled != old.telemetry.enabled:
        found.append("telemetry.enabled")
    if new.otlp != old.otlp:
        found.append("[otlp]")
    if new.web != old.web:
        found.append("[web]")
    if bool(new.items) != bool(old.items):
        found.append("the first [items], or their end")
    if new.recovery != old.recovery:
        found.append("[recovery]")
    if _histories(new) != _histories(old):
        found.append("history of topics")
    return found


def _histories(network: Network) -> dict[str, object]:
    return {topic.filter: topic.history for topic in network.topics if topic.history}


def _between_brokers(network: Network) -> tuple[object, ...]:
    security = network.security
    return security.overlay_secret, security.overlay_open, security.overlay_tls
