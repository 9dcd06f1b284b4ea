"""Where every command starts.

What needs no parser is answered without one: the list of commands and the version are printed in the time that Python
itself takes to start. A broker, which runs for months, has its options read without the parser's libraries: they take
12 MiB. Everything else is for `main`.
"""

import os
import sys
from collections.abc import Sequence
from textwrap import wrap

from overlane import __version__
from overlane.cli.commands import COMMANDS

ABOUT = "Publish/subscribe messaging across wide areas, within each topic's deadline."
WIDTH = 80
INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def run() -> None:
    match sys.argv[1:]:
        case [] | ["--help"]:
            _print(help_text())
        case ["--version"] | ["version"]:
            _print(__version__)
        case ["broker", *words] if run_broker(words):
            pass
        case _:
            from overlane.cli.main import app

            app()


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def help_text() -> str:
    lines = ["Usage: overlane COMMAND [ARGS]...", "", ABOUT, "", "Commands:"]
    widest = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        first, *others = wrap(command.help, WIDTH - widest - 4)
        lines += [f"  {name:{widest}}  {first}", *(f"  {'':{widest}}  {other}" for other in others)]
    options = ["  --help     Show this message and exit.", "  --version  Print the version and exit."]
    return "\n".join([*lines, "", "Options:", *options, "", "Help of a command: overlane COMMAND --help"])


def run_broker(words: Sequence[str]) -> bool:
    """Run a broker, unless its options need the parser."""
    import typer

    from overlane.cli.brokers.broker import broker
    from overlane.cli.plain_options import plain_options

    if (options := plain_options(broker, words)) is None:
        return False
    try:
        broker(**options)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    return True
