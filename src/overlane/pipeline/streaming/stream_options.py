"""Options of the data source `overlane`, validated."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from overlane.errors import ConfigError, Fault
from overlane.pipeline.streaming.stream_client import RETRY_S, Credentials

WHERE = "options of overlane"

READING = ("stream", "topic", "scope", "start", "maxmessages", "partitions", "failondataloss")
WRITING = ("name", "qos", "retain")
CONNECTION = ("brokers", "user", "password", "token", "ca", "patience")
SPARK_OPTIONS = ("path", "checkpointlocation", "queryname")
_STREAM_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
KNOWN = frozenset((*READING, *WRITING, *CONNECTION, *SPARK_OPTIONS))


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    brokers: tuple[str, ...]
    """Addresses of their admin API."""
    credentials: Credentials
    stream: str = ""
    topic: str = ""
    scope: str = "everywhere"
    is_from_earliest: bool = True
    messages_max: int | None = None
    """Per micro-batch, over all brokers."""
    partitions: int = 1
    """Per broker."""
    fails_on_loss: bool = True
    name: str = ""
    """Name of the writer."""
    qos: int = 1
    retain: bool = False


def _is_address(text: str) -> bool:
    """host:port, perhaps with http:// or https:// before it; with a scheme the port may be missing."""
    try:
        url = urlsplit(text if "://" in text else f"//{text}")
        has_port = url.port is not None
    except ValueError:
        return False
    is_known = url.scheme in ("", "http", "https")
    return is_known and bool(url.hostname) and (has_port or bool(url.scheme)) and url.path in ("", "/")


def read_options(given: Mapping[str, str]) -> StreamOptions:
    """ConfigError with all invalid options."""
    faults: list[Fault] = []
    wanted = {name.lower(): value for name, value in given.items()}

    def invalid(field: str, allowed: str) -> None:
        faults.append(Fault(WHERE, 0, field, repr(wanted[field]) if field in wanted else "nothing", allowed))

    def one_of(field: str, allowed: tuple[str, ...], default: str) -> str:
        value = wanted.get(field, default).lower()
        if value not in allowed:
            invalid(field, " or ".join(allowed))
        return value

    def number(field: str, at_least: int, at_most: int) -> int | None:
        text = wanted.get(field)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and at_least <= int(text) <= at_most):
            invalid(field, f"a whole number from {at_least} to {at_most}")
            return None
        return int(text)

    for field in sorted(wanted.keys() - KNOWN):
        # Without its value, which might be a password under a misspelled name.
        faults.append(Fault(WHERE, 0, field, "an unknown option", ", ".join(sorted(KNOWN))))
    brokers = tuple(
        dict.fromkeys(one.strip().rstrip("/") for one in wanted.get("brokers", "").split(",") if one.strip())
    )
    if not brokers or not all(map(_is_address, brokers)):
        invalid("brokers", 'addresses of admin listeners, such as "10.0.0.1:8001,10.0.0.2:8001"')
    if "stream" in wanted and not _STREAM_NAME.fullmatch(wanted["stream"]):
        invalid("stream", "1 to 100 letters, digits, _, . and -")
    scope = one_of("scope", ("here", "everywhere"), "here" if len(brokers) > 1 else "everywhere")
    if scope == "everywhere" and len(brokers) > 1:
        invalid("scope", "here, with several brokers: otherwise each message arrives several times")
    start = one_of("start", ("earliest", "latest"), "earliest")
    retry_s = number("patience", 0, 86_400)
    options = StreamOptions(
        brokers=brokers,
        credentials=Credentials(
            user=wanted.get("user"),
            password=wanted.get("password"),
            token=wanted.get("token"),
            ca=wanted.get("ca"),
            retry_s=RETRY_S if retry_s is None else float(retry_s),
        ),
        stream=wanted.get("stream", ""),
        topic=wanted.get("topic", ""),
        scope=scope,
        is_from_earliest=start == "earliest",
        messages_max=number("maxmessages", 1, 10**12),
        partitions=number("partitions", 1, 1_000) or 1,
        fails_on_loss=one_of("failondataloss", ("true", "false"), "true") == "true",
        name=wanted.get("name", ""),
        qos=int(one_of("qos", ("0", "1", "2"), "1")) if not faults else 1,
        retain=one_of("retain", ("true", "false"), "false") == "true",
    )
    if faults:
        raise ConfigError(faults)
    return options
