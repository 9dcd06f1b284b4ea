"""Where every command starts.

What needs no parser is answered without one: the list of commands and the version are printed in the time that Python
itself takes to start. A broker, which runs for months, has its options read without the parser's libraries: they take
12 MiB. Everything else is for `main`.
"""

import os
import sys
from collections.abc import Sequence

from overlane.cli.commands import COMMANDS
from overlane.cli.help_text import help_text

ABOUT = "Publish/subscribe messaging across wide areas, within each topic's deadline."
OPTIONS = {
    "--version": "Print the version and exit.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Print the completion script of the current shell.",
}
COMPLETE = "_OVERLANE_COMPLETE"
"""In the environment where a shell asks how a line may go on."""
INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def run() -> None:
    try:
        _run()
    except KeyboardInterrupt:  # also while the code is loaded
        sys.exit(INTERRUPTED)
    except Exception as error:
        from overlane.errors import OverlaneError, coded

        if not isinstance(error, OverlaneError):
            raise
        # A command that has no words of its own for it.
        print(coded(f"overlane: {error}", error.error_code), file=sys.stderr)
        sys.exit(2 if error.error_code.startswith("OVL-1") else 1)


def _run() -> None:
    match sys.argv[1:]:
        case _ if COMPLETE in os.environ:
            from overlane.cli.main import app

            app()
        case [] | ["--help"]:
            _print(help_text("overlane", ABOUT, COMMANDS, OPTIONS))
        case ["--version"] | ["version"]:
            from overlane.build_kind import version_text

            _print(version_text())
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


def run_broker(words: Sequence[str]) -> bool:
    """Run a broker, unless its options need the parser."""
    from overlane.cli.brokers.broker import broker
    from overlane.cli.plain_options import plain_options

    if (options := plain_options(broker, words)) is None:
        return False
    try:
        broker(**options)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as end:
        import typer

        if not isinstance(end, typer.Exit):
            raise
        sys.exit(end.exit_code)
    return True
