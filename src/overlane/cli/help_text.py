"""The help of a group of commands, as it is shown without importing them."""

from collections.abc import Mapping
from textwrap import wrap

from overlane.cli.commands import Command

WIDTH = 80


def help_text(path: str, about: str, commands: Mapping[str, Command], options: Mapping[str, str] | None = None) -> str:
    """`path`: the words before the command."""
    shown = {"--help": "Show this message and exit."} | dict(options or {})
    lines = [
        f"Usage: {path} COMMAND [ARGS]...",
        *("", *wrap(about, WIDTH)),
        *("", "Commands:", *_listed({name: command.help for name, command in commands.items()})),
        *("", "Options:", *_listed(shown)),
        *("", f"Help of a command: {path} COMMAND --help"),
    ]
    return "\n".join(lines)


def _listed(entries: Mapping[str, str]) -> list[str]:
    widest = max(map(len, entries))
    lines = []
    for name, text in entries.items():
        first, *others = wrap(text, WIDTH - widest - 4)
        lines += [f"  {name:{widest}}  {first}", *(f"  {'':{widest}}  {other}" for other in others)]
    return lines
