"""mosquitto.conf as a network file of one broker.

Taken over: listeners (MQTT, WebSocket, TLS), certificates, users, anonymous clients, access rules, limits. Everything
else is listed. Password files can be used as they are. No right becomes larger: where the files say something that
cannot be said in a network file and that restricts clients, it is an error.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from overlane.membership.endpoint import Endpoint
from overlane.migration.mosquitto_acl import read_acl
from overlane.network.schema import Broker, Network, Security
from overlane.pubsub.access import Rule
from overlane.pubsub.limits import Limits

ReadFile = Callable[[str], str]

ANYWHERE = "0.0.0.0"
LOOPBACK = "127.0.0.1"
PORT = 1883

_PROTOCOLS = {"mqtt": "mqtt", "websockets": "websocket"}

_LIMITS = {
    "max_connections": "connections",
    "max_inflight_messages": "in_flight",
    "max_queued_messages": "queue_messages",
    "max_packet_size": "packet_bytes",
    "max_keepalive": "keep_alive_s_max",
}
_OF_LISTENER = frozenset(
    {"protocol", "certfile", "keyfile", "cafile", "require_certificate", "use_identity_as_username", "bind_address"}
)
_OF_BRIDGE = re.compile(
    "(address|addresses|topic|username|password|clientid|cleansession|keepalive_interval|round_robin|start_type"
    "|restart_timeout|threshold|try_private|idle_timeout|notifications?_?.*|(bridge|local|remote)_.*)"
)
"""What stands behind `connection`, and is of that bridge. All other settings are the broker's, wherever they stand."""
_OF_BROKER = frozenset({"allow_anonymous", "password_file", "acl_file", "port", *_LIMITS})
_NEEDLESS = frozenset(
    {
        *("persistence", "persistence_location", "persistence_file", "autosave_interval", "autosave_on_changes"),
        *("log_dest", "log_type", "pid_file", "user", "include_dir", "tls_version"),
    }
)
"""Settings that need no counterpart: messages are on disk before they are acknowledged, logs go to standard error."""
_RESTRICTS = frozenset(
    {
        *("auth_plugin", "plugin", "global_plugin", "acl_plugin", "psk_file", "psk_hint", "crlfile", "capath"),
        *("clientid_prefixes", "bind_interface", "mount_point", "listener_allow_anonymous"),
    }
)
"""Settings that keep clients out, or topics apart, and have no counterpart."""


@dataclass(slots=True)
class Migrated:
    network: Network
    notes: list[str] = field(default_factory=list)
    """What was not taken over."""
    faults: list[str] = field(default_factory=list)
    """What restricts clients and cannot be taken over: the network must not be used."""


@dataclass(slots=True)
class _Listener:
    port: int
    host: str
    settings: dict[str, str] = field(default_factory=dict)


def migrated(confs: Sequence[str], name: str, read_file: ReadFile) -> Migrated:
    """`confs`: the text of the file, and of those that it includes. `read_file` gives that of another file it names."""
    made = Migrated(Network(brokers=(Broker(name=name),)))
    common, listeners = _sections(confs, made)
    limits = Limits()
    for setting, field_name in _LIMITS.items():
        if setting in common:
            limits = _with_limit(limits, setting, field_name, common[setting], made)
    is_local = not listeners and not {"port", "bind_address"} & set(common)
    if not listeners:
        _begin_listener(f"{common.get('port', PORT)} {LOOPBACK if is_local else ''}", "port", listeners, made)
        for one in listeners:
            one.settings = {setting: value for setting, value in common.items() if setting in _OF_LISTENER}
    users = common.get("password_file")
    security = Security(anonymous=_is_true(common.get("allow_anonymous", str(is_local))), users=users)
    where, security = _taken(listeners, security, made)
    rules: tuple[Rule, ...] = ()
    if (path := common.get("acl_file")) is not None:
        acl = read_acl(read_file(path))
        rules = tuple(acl.rules)
        made.notes += [f"{path}, {note}" for note in acl.notes]
        made.faults += [f"{path}, {fault}" for fault in acl.faults]
        if not rules:
            # Mosquitto denies everything with an empty file; without any rule everything would be allowed.
            made.faults.append(f"{path}: no rule in it can be taken over")
    if security.anonymous is False and users is None and security.client_ca is None:
        made.faults.append("nobody can connect: there are neither users nor anonymous clients nor certificates")
    made.network = Network(
        brokers=(Broker(name=name, listeners=where),), security=security, limits=limits, access=rules
    )
    return made


def _sections(confs: Sequence[str], made: Migrated) -> tuple[dict[str, str], list[_Listener]]:
    """The settings of the broker, and its listeners; bridges are noted. Each file begins outside of all of them."""
    common: dict[str, str] = {}
    listeners: list[_Listener] = []
    for conf in confs:
        listener: _Listener | None = None
        is_bridge = False
        for number, line in enumerate(conf.splitlines(), 1):
            setting, _, value = line.strip().partition(" ")
            value = value.strip()
            if not setting or setting.startswith("#"):
                continue
            if setting == "listener":
                listener = _begin_listener(value, f"line {number}: listener", listeners, made)
                is_bridge = False
            elif setting == "connection":
                is_bridge = True
                told = "make its other end a broker of the network, or keep the bridge there"
                made.notes.append(f"line {number}: bridge {value}: {told}")
            elif is_bridge and _OF_BRIDGE.fullmatch(setting):
                continue
            elif setting in _OF_LISTENER:
                (common if listener is None else listener.settings)[setting] = value
            elif setting in _OF_BROKER:
                common[setting] = value
            elif setting in _RESTRICTS or (setting == "per_listener_settings" and _is_true(value)):
                told = "has no counterpart, and clients would get more rights without it"
                made.faults.append(f"line {number}: {setting}: {told}")
            elif setting not in _NEEDLESS and setting != "per_listener_settings":
                made.notes.append(f"line {number}: {setting} {value}".rstrip() + ": no counterpart")
    return common, listeners


def _begin_listener(value: str, told: str, listeners: list[_Listener], made: Migrated) -> _Listener:
    """A listener that cannot be one here is left out: what follows it is not the broker's either."""
    port, _, host = value.partition(" ")
    is_port = port.isdigit() and 0 < int(port) < 65_536
    listener = _Listener(int(port) if is_port else 0, host.strip() or ANYWHERE)
    if is_port:
        listeners.append(listener)
    else:
        made.notes.append(f"{told} {value.strip()}: not a TCP port")
    return listener


def _taken(listeners: list[_Listener], security: Security, made: Migrated) -> tuple[dict[str, Endpoint], Security]:
    where: dict[str, Endpoint] = {}
    for one in listeners:
        settings = one.settings
        at = Endpoint(settings.get("bind_address", one.host), one.port)
        if (protocol := settings.get("protocol", "mqtt")) not in _PROTOCOLS:
            made.notes.append(f"listener {at}: protocol {protocol}: no counterpart")
            continue
        name = _PROTOCOLS[protocol] + ("_tls" if "certfile" in settings else "")
        if name in where:
            made.notes.append(f"listener {at}: there is one of this kind, {where[name]}, and a broker has one of each")
            continue
        where[name] = at
        if "certfile" in settings:
            security = _with_certificates(security, settings, at, made)
    if "mqtt" not in where:
        where = {"mqtt": Endpoint(LOOPBACK, PORT), **where}
        made.notes.append(f"every broker listens for MQTT: on {where['mqtt']}, for this machine only")
    return where, security


def _with_certificates(security: Security, settings: dict[str, str], at: Endpoint, made: Migrated) -> Security:
    is_required = _is_true(settings.get("require_certificate", "false"))
    found = structs.replace(
        security,
        certificate=settings["certfile"],
        key=settings.get("keyfile"),
        client_ca=settings.get("cafile") if is_required else None,
    )
    if security.certificate is not None and found != security:
        made.faults.append(f"listener {at}: other certificates than another listener's; a broker has one for all")
    if is_required and found.client_ca is None:
        made.faults.append(f"listener {at}: require_certificate without cafile: any client could connect")
    elif is_required and not _is_true(settings.get("use_identity_as_username", "false")):
        told = "a client's certificate names its user in Overlane, and no password is asked for besides"
        made.faults.append(f"listener {at}: require_certificate without use_identity_as_username: {told}")
    return found


def _with_limit(limits: Limits, setting: str, field_name: str, value: str, made: Migrated) -> Limits:
    """0 and -1 mean no limit in Mosquitto: then ours holds."""
    if not value.lstrip("-").isdigit():
        made.notes.append(f"{setting} {value}: not a number")
        return limits
    changed: Limits = structs.replace(limits, **{field_name: int(value)}) if int(value) > 0 else limits
    return changed


def _is_true(value: str) -> bool:
    return value.lower() in ("true", "1")
