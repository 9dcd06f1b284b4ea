"""How commands start: what they import, and what the list of commands says without importing them."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from overlane import __version__
from overlane.cli import pipeline, plan
from overlane.cli.brokers.broker import broker
from overlane.cli.commands import COMMANDS, Command
from overlane.cli.main import app
from overlane.cli.plain_options import plain_options
from overlane.node.logs.lines import Format, Level

TABLES = {"": COMMANDS, "plan ": plan.COMMANDS, "pipeline ": pipeline.COMMANDS}
EVERY = [(f"{path}{name}", name, command) for path, table in TABLES.items() for name, command in table.items()]

HEAVY = {
    *("typer", "click", "rich", "pydantic", "msgspec", "uvloop", "asyncio", "ssl", "sqlite3", "starlette", "uvicorn"),
    *("cryptography", "prometheus_client", "pyarrow", "numpy", "scipy", "highspy", "pandas", "pyspark"),
}


def modules_of(*words: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    script = f"import sys; sys.argv = {['overlane', *words]!r}\nfrom overlane.cli.start import run\nrun()\n"
    script += "print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(ended.stderr.split())


# The list of commands


@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for _, name, command in EVERY], ids=[x[0] for x in EVERY]
)
def test_the_list_of_commands_has_the_first_sentence_of_the_commands_own_help(name: str, command: Command) -> None:
    module = import_module(command.module)
    found = getattr(module, "app", None) or getattr(module, name.replace("-", "_"))
    text = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert text is not None
    assert command.help == re.split(r"(?<=\.)\s", text.replace("\n", " "), maxsplit=1)[0]


@pytest.mark.parametrize(("path", "table"), TABLES.items())
def test_help_lists_all_commands_and_fits_a_terminal(path: str, table: Mapping[str, Command]) -> None:
    shown = CliRunner().invoke(app, [*path.split(), "--help"]).stdout
    assert re.findall(r"^  ([a-z-]+) ", shown.partition("Options:")[0], re.MULTILINE) == list(table)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_the_parser_gives_the_same_help_as_the_start_without_it(words: tuple[str, ...]) -> None:
    direct = subprocess.run([sys.executable, "-m", "overlane", *words], capture_output=True, text=True, check=True)
    assert CliRunner().invoke(app, ["--help"]).stdout == direct.stdout


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_version_is_printed_with_and_without_the_parser(words: list[str]) -> None:
    direct = subprocess.run([sys.executable, "-m", "overlane", *words], capture_output=True, text=True, check=True)
    assert direct.stdout == CliRunner().invoke(app, words).stdout == f"{__version__} (pure Python)\n"


def test_help_ends_quietly_when_nobody_reads_it_to_its_end() -> None:
    command = [sys.executable, "-m", "overlane", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


# What is imported


@pytest.mark.parametrize("words", [(), ("--help",), ("--version",), ("version",)])
def test_help_and_version_import_no_libraries_and_few_modules(words: tuple[str, ...]) -> None:
    there = modules_of(*words)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    more = there - set(bare.stdout.split())
    assert more & HEAVY == set()
    assert len(more) < 50, sorted(more)


# A broker's options without the parser


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("net.toml", {"network": Path("net.toml")}),
        ("net.toml --name a", {"network": Path("net.toml"), "name": "a"}),
        ("--name=a net.toml", {"network": Path("net.toml"), "name": "a"}),
        ("net.toml --data d --no-sync", {"network": Path("net.toml"), "data": Path("d"), "no_sync": True}),
        (
            "net.toml --log-format json --log-level=error --supervised",
            {"network": Path("net.toml"), "log_format": Format.JSON, "log_level": Level.ERROR, "supervised": True},
        ),
        ("", None),
        ("--help", None),
        ("net.toml --help", None),
        ("net.toml other.toml", None),
        ("net.toml --nmae a", None),
        ("net.toml --name", None),
        ("net.toml --name --data d", None),
        ("net.toml --name a --name b", None),
        ("net.toml --log-level loud", None),
        ("net.toml --no-sync=yes", None),
        ("net.toml --", None),
        ("-", None),
    ],
)
def test_a_brokers_options_are_read_without_the_parser_if_they_are_plain(
    words: str, options: dict[str, object] | None
) -> None:
    assert plain_options(broker, words.split()) == options


def test_every_option_of_a_broker_can_be_read_without_the_parser() -> None:
    texts = {"log_format": "text", "log_level": "info", "role": "edge"}
    for name, parameter in inspect.signature(broker).parameters.items():
        if parameter.default is not parameter.empty and name != "network":
            value = [] if parameter.default is False else [texts.get(name, "x")]
            found = plain_options(broker, ["net.toml", f"--{name.replace('_', '-')}", *value])
            assert found is not None
            assert set(found) == {"network", name}


def test_the_code_of_a_broker_does_not_load_what_few_brokers_need() -> None:
    script = "import sys\nimport overlane.cli.brokers.broker, overlane.cli.plain_options\nprint(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"typer", "argon2", "websockets", "prometheus_client"} & set(ended.stdout.split()) == set()


def test_ctrl_c_while_the_code_is_loaded_ends_a_command_without_a_traceback() -> None:
    script = "import os, signal, sys\nfrom overlane.cli import start\n"
    script += "class Interrupts:\n    def find_spec(self, name, *_):\n"
    script += "        if name == 'overlane.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
    script += "sys.meta_path.insert(0, Interrupts()); sys.argv = ['overlane', 'up', 'x.toml']\nstart.run()\n"
    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


# What is wrong in the words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nosuch"], "overlane: no such command 'nosuch'; see overlane --help [OVL-102]"),
        (["status", "--nosuch"], "overlane: no such option: --nosuch; see overlane status --help [OVL-102]"),
        (["plan", "nosuch"], "overlane: no such command 'nosuch'; see overlane plan --help [OVL-102]"),
        (["up"], "overlane: missing argument 'NETWORK.toml'; see overlane up --help [OVL-102]"),
        (["topics", "--filter", "a/#/b"], "overlane: --filter: "),
        (["status", "nofile.toml"], "nofile.toml: "),
    ],
)
def test_every_error_is_one_line_with_a_code_and_the_status_is_2(words: list[str], told: str) -> None:
    shown = CliRunner().invoke(app, words, prog_name="overlane")
    assert (shown.exit_code, shown.stdout) == (2, "")
    (line,) = shown.stderr.splitlines()
    assert line.startswith(told)
    assert re.search(r" \[OVL-\d+\]$", line)


def test_a_group_without_a_command_shows_its_help_with_status_2() -> None:
    shown = CliRunner().invoke(app, ["plan"])
    assert shown.exit_code == 2
    assert "Usage: " in shown.output


# Completion


def completed(line: str, home: Path) -> list[str]:
    """What bash is told that the last word may become."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_OVERLANE_COMPLETE": "complete_bash"}
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], **words}
    overlane = str(Path(sys.executable).with_name("overlane"))
    return subprocess.run([overlane], env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_completion_is_installed_for_the_shell_and_completes_commands_and_options(tmp_path: Path) -> None:
    overlane = str(Path(sys.executable).with_name("overlane"))
    environment = {"HOME": str(tmp_path), "SHELL": "/bin/bash", "PATH": os.environ["PATH"]}
    command = ["bash", "-c", f"{overlane} --install-completion; true"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "completion installed" in told
    assert "overlane.sh" in (tmp_path / ".bashrc").read_text()
    script = tmp_path / ".bash_completions" / "overlane.sh"
    sourced = subprocess.run(
        ["bash", "-c", f". {script} && complete -p overlane"], capture_output=True, text=True, check=True
    )
    assert "overlane" in sourced.stdout
    assert completed("overlane sta", tmp_path) == ["status"]
    assert completed("overlane status --w", tmp_path) == ["--watch", "--wide"]
