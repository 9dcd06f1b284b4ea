"""mosquitto.conf as a network file of one broker.

Taken over: listeners (MQTT, WebSocket, TLS), certificates, users, anonymous clients, access rules, limits. Everything
else is listed. Password files can be used as they are. No right becomes larger: where the files say something that
cannot be said in a network file and that restricts clients, it is an error.
"""

from collections.abc import Callable
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

_LIMITS = {
    "max_connections": "connections",
    "max_inflight_messages": "in_flight",
    "max_queued_messages": "queue_messages",
    "max_packet_size": "packet_bytes",
    "max_keepalive": "keep_alive_s_max",
}
_OF_LISTENER = frozenset({"protocol", "certfile", "keyfile", "cafile", "require_certificate", "bind_address"})
_NEEDLESS = {
    "persistence": "brokers always keep what was acknowledged",
    "persistence_location": "--data of overlane broker",
    "persistence_file": "--data of overlane broker",
    "autosave_interval": "everything is on disk before it is acknowledged",
    "autosave_on_changes": "everything is on disk before it is acknowledged",
    "log_dest": "brokers log to standard error",
    "log_type": "--log-level of overlane broker",
    "pid_file": "the process of overlane broker is its own",
    "user": "start it as the user that it should be",
    "include_dir": "its files were read",
    "per_listener_settings": "one set of users and rules holds for all listeners",
    "use_identity_as_username": "the certificate always names the user",
    "tls_version": "TLS 1.2 or newer",
}
"""Settings that need no counterpart, and why."""
_RESTRICTS = frozenset({"auth_plugin", "plugin", "global_plugin", "psk_file", "crlfile", "clientid_prefixes"})
"""Settings that keep clients out, and have no counterpart."""


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


def migrated(conf: str, name: str, read_file: ReadFile) -> Migrated:
    """`conf`: the text, with included files behind it. `read_file` gives the text of a file that it names."""
    made = Migrated(Network(brokers=(Broker(name=name),)))
    common, listeners = _sections(conf, made)
    limits = Limits()
    for setting, field_name in _LIMITS.items():
        if setting in common:
            limits = _with_limit(limits, setting, field_name, common[setting], made)
    security = Security(
        anonymous=_is_true(common.get("allow_anonymous", "false" if listeners else "true")),
        users=common.get("password_file"),
    )
    if not listeners:
        listeners = [_Listener(int(common.get("port", PORT)), common.get("bind_address", LOOPBACK), common)]
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
    if security.anonymous is False and security.users is None and security.client_ca is None:
        made.notes.append("nobody can connect: there are neither users nor anonymous clients; see [security]")
        security = structs.replace(security, anonymous=None)
    made.network = Network(
        brokers=(Broker(name=name, listeners=where),), security=security, limits=limits, access=rules
    )
    return made


def _sections(conf: str, made: Migrated) -> tuple[dict[str, str], list[_Listener]]:
    """The settings of the broker, and its listeners; bridges are noted."""
    common: dict[str, str] = {}
    listeners: list[_Listener] = []
    bridge = ""
    for number, line in enumerate(conf.splitlines(), 1):
        setting, _, value = line.strip().partition(" ")
        value = value.strip()
        if not setting or setting.startswith("#"):
            continue
        if setting == "listener":
            port, _, host = value.partition(" ")
            if not port.isdigit() or not 0 < int(port) < 65_536:
                made.notes.append(f"line {number}: listener {value}: not a TCP port")
                continue
            listeners.append(_Listener(int(port), host.strip() or ANYWHERE))
            bridge = ""
        elif setting == "connection":
            bridge = value
            made.notes.append(
                f"line {number}: bridge {value}: make its other end a broker of the network, or keep the bridge there"
            )
        elif bridge:
            continue
        elif listeners and setting in _OF_LISTENER:
            listeners[-1].settings[setting] = value
        elif setting in _RESTRICTS:
            made.faults.append(
                f"line {number}: {setting}: has no counterpart, and clients would get more rights without it"
            )
        elif setting in _NEEDLESS:
            if setting in ("per_listener_settings",) and _is_true(value):
                made.faults.append(f"line {number}: {setting}: one set of users and rules holds for all listeners")
        elif setting in ("allow_anonymous", "password_file", "acl_file", "port", *_LIMITS, *_OF_LISTENER):
            common[setting] = value
        else:
            made.notes.append(f"line {number}: {setting} {value}".rstrip() + ": no counterpart")
    return common, listeners


def _taken(listeners: list[_Listener], security: Security, made: Migrated) -> tuple[dict[str, Endpoint], Security]:
    where: dict[str, Endpoint] = {}
    for one in listeners:
        settings = one.settings
        is_websocket = settings.get("protocol") == "websockets"
        name = ("websocket" if is_websocket else "mqtt") + ("_tls" if "certfile" in settings else "")
        at = Endpoint(settings.get("bind_address", one.host), one.port)
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
