"""`overlane init`: a first network file, whose comments say what else can stand there.

Exit status: 0 written, 1 it cannot be written, 2 the file exists or a name is invalid.
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from overlane.cli.exit_status import UNAVAILABLE, exit_on_error, fail
from overlane.network.schema import Security
from overlane.secret_file import reason_of

PORTS = {"mqtt": 1883, "overlay": 7001, "admin": 8001, "tls": 8883, "websocket": 8080}
"""Of the first broker; the next one has the next."""

HEAD = """\
# A network of Overlane.
#
# Check that everything is there that its brokers need:              overlane check {file}
# Run all of them on this machine; --monitor shows them in a browser: overlane up {file}
# Run one of them, on its own machine:                               overlane broker {file} --name NAME

"""

BROKER = """\
[brokers.{key}]
mqtt = "127.0.0.1:{mqtt}"           # clients; "0.0.0.0:{mqtt}" lets other machines in: then set [security] first
overlay = "127.0.0.1:{overlay}"        # other brokers
admin = "127.0.0.1:{admin}"          # overlane status, links, routes ...; Prometheus metrics at /metrics
# mqtt_tls = "0.0.0.0:{tls}"       # needs certificate and key in [security]
# websocket = "127.0.0.1:{websocket}"

"""

LINK = """\
[[links]]
ends = [{one}, {other}]
latency = "20ms"                  # what you expect; brokers measure it
# rate = "10Mbit"                 # of the line, if it is narrow

"""

TOPICS = """\
# QoS of topics. Of several filters that match, the most specific one counts.
[topics."alarms/#"]
deadline = "100ms"                # from publisher to subscriber; routes are chosen to meet it
reliability = "reliable"          # sent again until it has arrived

[topics."sensors/#"]
deadline = "1s"

# [security]
# users = "users.txt"             # overlane passwd users.txt NAME adds one
# certificate = "certs/{{name}}.pem"  # {{name}}: the broker's name
# key = "certs/{{name}}.key"
# admin_token = "admin.token"
# overlay_secret = "overlay.secret"   # brokers on several machines need this, or certificates (overlay_tls)

# [[access]]                      # who may do what; without it everybody may do everything
# user = "*"
# publish = ["sensors/%u/#"]
# subscribe = ["#"]
"""


def init(
    file: Annotated[Path, typer.Argument(help="File to write.", metavar="NETWORK.toml")] = Path("overlane.toml"),
    brokers: Annotated[
        str, typer.Option("--brokers", metavar="NAMES", help="Names of the brokers, separated by commas.")
    ] = "broker-1",
    mosquitto: Annotated[
        Path | None, typer.Option("--mosquitto", metavar="FILE", help="Convert this mosquitto.conf.")
    ] = None,
) -> None:
    """Write a first network file, with comments."""
    # Imported here so that other commands start faster.
    from overlane.network.reading import parse_network

    names = [name.strip() for name in brokers.split(",")]
    text = content(names, str(file)) if mosquitto is None else _from_mosquitto(mosquitto, names[0], str(file))
    with exit_on_error():
        parse_network(text, str(file))
    try:
        with file.open("x") as written:
            written.write(text)
    except FileExistsError:
        fail(f"{file} exists; it was not changed")
    except OSError as refused:
        fail(f"{file}: cannot be written: {refused.strerror}", UNAVAILABLE)
    typer.echo(f"wrote {file}\nnext: overlane check {file} && overlane up {file}")


def _from_mosquitto(conf: Path, name: str, file: str) -> str:
    """The text of the file. Settings that were not converted are listed at its beginning, and on standard error."""
    from overlane.migration import migrated
    from overlane.network import format_network

    def read(path: str | Path) -> str:
        try:
            return (conf.parent / path).read_text()
        except (OSError, ValueError) as refused:
            fail(f"{path}: found no way to read it ({reason_of(refused)}), allowed is a file of Mosquitto")

    texts = [read(conf.name)]
    for line in texts[0].splitlines():
        setting, _, directory = line.strip().partition(" ")
        if setting == "include_dir":
            texts += [read(path) for path in sorted((conf.parent / directory.strip()).glob("*.conf"))]
    made = migrated(texts, name, read)
    if made.faults:
        fail("\n".join(f"{conf}: {fault}" for fault in made.faults))
    for note in made.notes:
        typer.echo(f"{conf}: not converted: {note}", err=True)
    notes = "".join(f"# Not converted: {note}\n" for note in made.notes)
    network = structs.replace(made.network, security=_found_from(Path(file).parent, conf.parent, made.network.security))
    return f"{HEAD.format(file=file)}{notes}{format_network(network)}"


def _found_from(there: Path, directory: Path, security: Security) -> Security:
    """With paths that lead from another directory to the same files: those of a network file are relative to it."""
    if there.resolve() == directory.resolve():
        return security
    fields = ("users", "certificate", "key", "client_ca")
    paths = {field: path for field in fields if (path := getattr(security, field)) is not None}
    return structs.replace(security, **{field: str(directory.resolve() / path) for field, path in paths.items()})


def content(names: list[str], file: str) -> str:
    """The brokers in a row, each linked to the next."""
    parts = [HEAD.format(file=file)]
    for position, name in enumerate(names):
        parts.append(BROKER.format(key=_key(name), **{field: port + position for field, port in PORTS.items()}))
    for one, other in pairwise(names):
        parts.append(LINK.format(one=json.dumps(one), other=json.dumps(other)))
    parts.append(TOPICS.format())
    return "".join(parts)


def _key(name: str) -> str:
    """As a TOML key. The reader of network files says what is wrong with a name."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
