"""What `spark.readStream.format("overlane")` and its like are asked for: options, read once and told of if wrong."""

from collections.abc import Mapping

import msgspec

from overlane.errors import ConfigError, Fault
from overlane.pipeline.streambroker import PATIENCE_S, Access

WHERE = "options of overlane"

READING = ("stream", "topic", "scope", "start", "maxmessages", "partitions", "failondataloss")
WRITING = ("name", "qos", "retain")
REACHING = ("brokers", "user", "password", "token", "ca", "patience")
SPARKS_OWN = ("path", "checkpointlocation", "queryname")
KNOWN = frozenset((*READING, *WRITING, *REACHING, *SPARKS_OWN))


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    brokers: tuple[str, ...]
    """The addresses of their admin listeners."""
    access: Access
    stream: str = ""
    topic: str = ""
    scope: str = "everywhere"
    is_from_earliest: bool = True
    messages_max: int | None = None
    """In one micro-batch, of all brokers together."""
    partitions: int = 1
    """For each broker."""
    fails_on_loss: bool = True
    name: str = ""
    """Of who writes."""
    qos: int = 1
    retain: bool = False


def read_options(given: Mapping[str, str]) -> StreamOptions:
    """ConfigError with everything that is wrong."""
    faults: list[Fault] = []
    wanted = {name.lower(): value for name, value in given.items()}

    def refuse(field: str, allowed: str) -> None:
        faults.append(Fault(WHERE, 0, field, repr(wanted[field]) if field in wanted else "nothing", allowed))

    def one_of(field: str, allowed: tuple[str, ...], default: str) -> str:
        value = wanted.get(field, default).lower()
        if value not in allowed:
            refuse(field, " or ".join(allowed))
        return value

    def number(field: str, at_least: int, at_most: int) -> int | None:
        text = wanted.get(field)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and at_least <= int(text) <= at_most):
            refuse(field, f"a whole number from {at_least} to {at_most}")
            return None
        return int(text)

    for field in sorted(wanted.keys() - KNOWN):
        # Without its value: it might be a misspelt password.
        faults.append(Fault(WHERE, 0, field, "an unknown option", ", ".join(sorted(KNOWN))))
    brokers = tuple(
        dict.fromkeys(one.strip().rstrip("/") for one in wanted.get("brokers", "").split(",") if one.strip())
    )
    if not brokers:
        refuse("brokers", 'addresses of admin listeners, such as "10.0.0.1:8001,10.0.0.2:8001"')
    scope = one_of("scope", ("here", "everywhere"), "here" if len(brokers) > 1 else "everywhere")
    if scope == "everywhere" and len(brokers) > 1:
        refuse("scope", "here where there are several brokers: each message would come several times")
    start = one_of("start", ("earliest", "latest"), "earliest")
    patience_s = number("patience", 0, 86_400)
    options = StreamOptions(
        brokers=brokers,
        access=Access(
            user=wanted.get("user"),
            password=wanted.get("password"),
            token=wanted.get("token"),
            ca=wanted.get("ca"),
            patience_s=PATIENCE_S if patience_s is None else float(patience_s),
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
