"""`overlane mediate`: what the rules of a network file do to messages, without a broker.

Exit status: 0 no rule has failed, 1 a rule has failed for a message, 2 the file or a message is invalid.
"""

import base64
import binascii
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overlane.cli.exit_status import INVALID_INPUT, exit_on_error
from overlane.errors import ConfigError, Fault

if TYPE_CHECKING:
    from overlane.mediation.draft import Draft
    from overlane.mediation.dry_run import Step

RULE_FAILED = 1
SHOWN_CHARS = 200


class MessageLine(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the input."""

    topic: str
    payload: msgspec.Raw = msgspec.Raw(b'""')
    """A text, or any other JSON value, which is the payload itself."""
    base64: str | None = None
    """A binary payload instead."""
    content_type: str | None = None
    properties: dict[str, str] = {}
    qos: int = 0
    retain: bool = False
    at: float | None = None
    """Seconds from the beginning; None: as the message before."""


def mediate(
    file: Annotated[Path, typer.Argument(help="Network file.", metavar="NETWORK.toml", show_default=False)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Required: only show the effect of the rules. Brokers apply them.")
    ] = False,
    broker: Annotated[str, typer.Option("--broker", help="The rules of this broker (default: all rules).")] = "",
    to: Annotated[
        str, typer.Option("--to", help="With --broker: also the rules at borders on the way to this broker.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Show the effect of the rules in [[mediation]]: read messages as JSON lines, print the result of each."""
    # Imported here so that other commands start faster.
    from overlane.mediation.dry_run import DryRun
    from overlane.mediation.mediation import Mediation
    from overlane.network.reading import read_network
    from overlane.network.sections.mediation import border_rules_of

    if not dry_run:
        typer.echo("overlane mediate: expected --dry-run; brokers apply the rules to what clients publish", err=True)
        raise typer.Exit(INVALID_INPUT)
    has_failed = False
    with exit_on_error():
        network = read_network(file)
        for name in (broker, to):
            if name and name not in [one.name for one in network.brokers]:
                raise ConfigError([Fault(str(file), 0, "brokers", f"no broker {name}", "the name of a broker")])
        if to and not broker:
            raise ConfigError([Fault("--to", 0, "", "no --broker", "the broker where messages are published")])
        rules = [
            one
            for one in network.mediation
            if not one.border and (not broker or not one.brokers or broker in one.brokers)
        ]
        if to and (borders := border_rules_of(network, broker)) is not None:
            rules += borders.between(borders.own, borders.domain_of(to))
        for step in DryRun(Mediation(rules)).run(_messages(sys.stdin.buffer)):
            has_failed |= step.result == "failed"
            typer.echo(msgspec.json.encode(_object(step)).decode() if as_json else _line(step))
    if has_failed:
        raise typer.Exit(RULE_FAILED)


def _messages(lines: Iterable[bytes]) -> "Iterator[tuple[int, Draft]]":
    from overlane.mediation.draft import Draft
    from overlane.quantities import SECOND

    decoder, at_ns = msgspec.json.Decoder(MessageLine), 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one = decoder.decode(line)
            payload = _payload(one)
        except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error) as wrong:
            allowed = 'a JSON object such as {"topic": "a/b", "payload": {"t": 20}, "at": 1.5}'
            raise ConfigError([Fault("standard input", number, "", str(wrong), allowed)]) from None
        if one.at is not None:
            at_ns = max(at_ns, int(one.at * SECOND))
        yield (
            at_ns,
            Draft(one.topic, payload, one.qos, one.retain, one.content_type, properties=tuple(one.properties.items())),
        )


def _payload(line: MessageLine) -> bytes:
    if line.base64 is not None:
        return base64.b64decode(line.base64, validate=True)
    value = msgspec.json.decode(line.payload)
    return value.encode() if isinstance(value, str) else bytes(line.payload)


def _line(step: "Step") -> str:
    at = f"{step.number:>4}  {step.at_ns / 1e9:8.3f} s  {step.result:<7}"
    if step.draft is not None:
        draft = step.draft
        pairs = "".join(f"  {name}={value}" for name, value in draft.properties)
        kind = f"  [{draft.content_type}]" if draft.content_type else ""
        return f"{at} {draft.topic}  {_shown(draft.payload)}{kind}{pairs}"
    return f"{at} by {step.rule}" + (f": {step.told}" if step.told else "")


def _shown(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and (text or not payload) else "0x" + payload.hex()
    return shown if len(shown) <= SHOWN_CHARS else shown[:SHOWN_CHARS] + "..."


def _object(step: "Step") -> dict[str, object]:
    found: dict[str, object] = {"message": step.number, "at": step.at_ns / 1e9, "result": step.result}
    if step.rule:
        found["rule"] = step.rule
    if step.told:
        found["reason"] = step.told
    if (draft := step.draft) is not None:
        found["topic"] = draft.topic
        try:
            found["payload"] = draft.payload.decode()
        except UnicodeDecodeError:
            found["base64"] = base64.b64encode(draft.payload).decode()
        found |= {"content_type": draft.content_type, "properties": dict(draft.properties)}
    return found
