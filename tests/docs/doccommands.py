"""The commands in a page, who runs them, and whether what they name exists.

A line is a command if it stands in a `console` block behind `$`, in a `sh` block, or, in blocks that do not say what
they are, if it begins with the name of a program that the documents use. It is run as it stands, unless a test of its
own runs it, which has the machine, the Spark or the stand-ins that it takes.

The names of all are checked, of those in the midst of a sentence too: the command and all its options against the
parser of `overlane`, targets against the Makefile, scripts and their options against the files.
"""

import re
import shlex
from dataclasses import dataclass, replace
from typing import Any

import typer
from docpages import PROJECT, Block, Page

from overlane.cli.main import app

PROGRAMS = (
    *("overlane", "make", "python", "sudo", "pip", "apt-get", "curl", "mosquitto_sub", "mosquitto_pub"),
    *("sensors", "pass", "cp", ".", ".venv/bin/overlane", ".venv/bin/python", "openssl", "sqlite3"),
)

TAKEOVER = "tests/node/recovery/test_takeover.py"
RESERVATIONS = "tests/overlay/test_reservations.py"
ITEMS_LIVE = "tests/coordination/test_items_live.py"
TWO_TIERS = "tests/coordination/test_two_tiers.py"

ELSEWHERE = {
    "make": "tests/docs/test_make.py::test_a_target_runs_what_it_says",
    "overlane demo": (
        "tests/demo/test_demo.py::test_without_root_it_tells_every_step_loses_nothing_and_leaves_nothing_behind"
    ),
    "sudo overlane testbed": (
        "tests/testbed/test_trial_apart.py::test_the_command_prints_both_reports_in_the_simulators_form"
    ),
    "overlane pipeline run": (
        "tests/pipeline/test_closed_loop.py"
        "::test_routes_leave_a_link_for_its_recorded_history_unless_the_plan_made_of_it_is_stale"
    ),
    "overlane pipeline report": (
        "tests/pipeline/test_report_page.py"
        "::test_the_command_writes_the_page_of_the_last_run_or_says_that_there_is_none"
    ),
    "overlane pipeline forecast": (
        "tests/pipeline/test_peak_forecast.py::test_the_command_forecasts_from_the_tables_of_the_last_run"
    ),
    "overlane pipeline profiles": (
        "tests/pipeline/test_flow_profiles.py::test_the_command_and_the_report_tell_the_flows_of_the_last_run"
    ),
    "overlane pipeline watch": (
        "tests/pipeline/test_pipeline_watch.py"
        "::test_subscribers_of_alerts_hear_once_of_a_topic_that_falls_below_its_target"
    ),
    "overlane plan allocate tables": (
        "tests/pipeline/test_pipeline_lessons.py::test_the_plans_of_a_run_are_problems_that_plan_commands_solve"
    ),
    "overlane gateway": (
        "tests/gateways/test_mqtt_gateway.py::test_messages_cross_both_ways_under_their_names_and_do_not_come_back"
    ),
    "overlane zookeeper": "tests/coordination/test_contract.py::test_an_ensemble_keeps_its_addresses_and_its_data",
    "overlane up examples/two-tiers.toml": f"{TWO_TIERS}::test_one_file_runs_zookeeper_and_two_tiers",
    "overlane brokers examples/two-tiers.toml": f"{TWO_TIERS}::test_one_file_runs_zookeeper_and_two_tiers",
    "overlane assignments examples/two-tiers.toml": f"{TWO_TIERS}::test_one_file_runs_zookeeper_and_two_tiers",
    "overlane monitor examples/two-tiers.toml": f"{TWO_TIERS}::test_one_file_runs_zookeeper_and_two_tiers",
    "overlane monitor examples/five-cities.toml --telemetry": (
        "tests/monitor/test_days_shown.py::test_two_days_of_telemetry_are_played_with_their_dates"
    ),
    "overlane sub 127.0.0.1:1887": f"{TWO_TIERS}::test_one_file_runs_zookeeper_and_two_tiers",
    "overlane pub 127.0.0.1:1885": f"{TWO_TIERS}::test_one_file_runs_zookeeper_and_two_tiers",
    "overlane sub 127.0.0.1:1885,127.0.0.1:1886": (
        "tests/coordination/test_clients_anywhere.py"
        "::test_overlanes_client_switches_with_its_session_and_nothing_is_lost_or_comes_twice"
    ),
    "overlane config push": f"{TWO_TIERS}::test_brokers_follow_a_push_and_a_wrong_one_changes_nothing",
    "overlane config pull": f"{TWO_TIERS}::test_brokers_follow_a_push_and_a_wrong_one_changes_nothing",
    "overlane config diff": f"{TWO_TIERS}::test_brokers_follow_a_push_and_a_wrong_one_changes_nothing",
    "overlane broker --name": f"{TWO_TIERS}::test_brokers_follow_a_push_and_a_wrong_one_changes_nothing",
    "overlane up examples/highway.toml": f"{ITEMS_LIVE}::test_every_broker_knows_the_same_directory",
    "overlane directory": f"{ITEMS_LIVE}::test_every_broker_knows_the_same_directory",
    "overlane drain": f"{ITEMS_LIVE}::test_a_drained_broker_carries_nothing_until_it_is_undrained",
    "overlane undrain": f"{ITEMS_LIVE}::test_a_drained_broker_carries_nothing_until_it_is_undrained",
    "overlane recovery": f"{TAKEOVER}::test_an_operator_moves_a_broker_away_and_back_and_a_silent_host_is_replaced",
    "overlane brokers --zookeeper": f"{TWO_TIERS}::test_brokers_follow_a_push_and_a_wrong_one_changes_nothing",
    "overlane clients": "tests/cli/test_status.py::test_clients_are_shown_with_those_that_are_away",
    "overlane disconnect": (
        "tests/cli/test_status.py::test_a_client_is_disconnected_at_the_broker_that_has_it_and_its_session_deleted"
    ),
    "overlane retained": "tests/cli/test_status.py::test_retained_messages_are_listed_and_removed_at_all_brokers",
    "overlane broker net.toml --telemetry s3://": (
        "tests/telemetry/test_bucket_lake.py::test_a_broker_records_into_a_bucket_and_goes_on_there_after_a_restart"
    ),
    "cp -r $project . && spark-pipelines dry-run": (
        "tests/pipeline/test_pipeline_project.py::test_spark_pipelines_could_make_all_tables_of_the_project"
    ),
    "mosquitto_pub -h berlin": f"{RESERVATIONS}::test_mosquittos_clients_advertise_and_reserve",
    "mosquitto_sub -V 5 -h madrid": f"{RESERVATIONS}::test_mosquittos_clients_advertise_and_reserve",
    "overlane reservations net.toml --htb": (
        "tests/network/test_htb.py::test_the_command_prints_them_and_names_what_is_wrong"
    ),
    "overlane reservations": f"{RESERVATIONS}::test_the_command_shows_who_has_what_over_which_path",
    "curl -d '21.5'": "tests/web/test_web_listener.py::test_curl_publishes_and_reads",
    "curl -N": "tests/web/test_web_listener.py::test_curl_publishes_and_reads",
    "curl -d hub.mode=subscribe": "tests/web/test_websub.py::test_a_subscriber_is_verified_and_gets_signed_content",
    "python bench/": "tests/docs/test_bench_commands.py::test_a_benchmark_runs_as_the_documents_say",
    "python tests/mqtt/mqtt_soak.py": "tests/docs/test_bench_commands.py::test_a_soak_runs_as_the_documents_say",
    "python tests/sim/test_sabotage.py": "tests/sim/test_sabotage.py::test_the_soak_notices_a_core",
    "python tests/sim/test_zookeeper_away.py": (
        "tests/sim/test_zookeeper_away.py"
        "::test_everything_reconciles_after_hours_without_zookeeper_in_which_all_brokers_have_restarted"
    ),
    "python tests/sim/test_whole_sabotage.py": "tests/sim/test_whole_sabotage.py::test_the_soak_notices",
    "python scripts/write_reference.py": (
        "tests/docs/test_reference.py::test_the_tables_of_the_network_file_are_what_the_code_asks_for"
    ),
    "python scripts/newcomer.py": (
        "tests/docs/test_newcomer.py::test_the_commands_are_listed_without_the_tests_which_take_long"
    ),
    "python scripts/write_images.py": ("tests/monitor/test_pictures.py::test_the_page_is_shown_wide_and_on_a_phone"),
    "python scripts/cut_rtt.py": "tests/test_data.py::test_the_best_measured_nodes_are_cut_out",
    "python scripts/import_topology.py": "tests/test_data.py::test_a_map_becomes_a_network_and_says_what_was_left_out",
}
"""Which test runs commands that begin like this."""

GROUPS = ("plan", "pipeline", "config", "recovery")
GOES_ON = re.compile(r"overlane (up|broker|join|monitor|sub) |mosquitto_sub |overlane pub (?=.*--rate)(?!.*--count)")
"""Commands that run until Ctrl-C."""
_SET = re.compile(r"^([A-Z_]+=\S+ )+")
_ASSIGNED = re.compile(r"[a-z]+=\$\(")
_IN_SENTENCES = re.compile(r"(overlane [a-z]|make [a-z]|([A-Z_]+=\S+ )*python ((bench|tests|scripts)/|-m pytest ))")


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str
    types: str = ""
    shows: str = ""
    elsewhere: str = ""
    """The test that runs it; empty if it is run with the page."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def commands_of(page: Page) -> list[Command]:
    return [command for block in page.blocks for command in _commands_in(page, block)]


def _commands_in(page: Page, block: Block) -> list[Command]:
    note = block.notes.get("test", "")
    types = note.removeprefix("types ") if note.startswith("types ") else ""
    found = []
    for number, line in enumerate(block.lines, block.line + (block.language is not None)):
        if (text := command_in(block.language, line)) is not None:
            text = re.sub(r"\.venv/bin/(overlane|python)", r"\1", text)
            found.append(Command(page.name, number, text, types, elsewhere=_elsewhere(text)))
    if note.startswith("shows ") and found:
        found[-1] = replace(found[-1], shows=note.removeprefix("shows "))
    return found


def command_in(language: str | None, line: str) -> str | None:
    """The command in a line of a block; None if it has none."""
    line = re.sub(r"\s+# .*", "", line).strip()
    match language:
        case "console":
            return line[2:] if line.startswith("$ ") else None
        case "sh":
            return line or None
        case None | "":
            return line if line.split(" ")[0] in PROGRAMS or _ASSIGNED.match(line) else None
        case _:
            return None


def _elsewhere(text: str) -> str:
    return next((test for start, test in ELSEWHERE.items() if _begins(text, start)), "")


def _begins(text: str, start: str) -> bool:
    return text.startswith(start) and (start.endswith(("/", "tables")) or text[len(start) :][:1] in ("", " "))


def commands_in_sentences(page: Page) -> list[Command]:
    """A command is named in a sentence if there is more than its bare name."""
    return [
        Command(page.name, line, text, elsewhere=_elsewhere(_SET.sub("", text)))
        for line, code in page.inline()
        if _IN_SENTENCES.match(text := code.replace(".venv/bin/", ""))
    ]


def programs_of(command: Command) -> list[tuple[str, ...]]:
    """The commands of `overlane` in it, such as ("plan", "apply"); `plan apply|show` are two."""
    words = command.text.split()
    if words[0] != "overlane":
        return []
    found: list[tuple[str, ...]] = [()]
    for word in words[1:3]:
        if not re.fullmatch(r"[a-z][a-z|-]*", word) or (found[0] and found[0][0] not in GROUPS):
            break
        found = [(*one, name) for one in found for name in word.split("|")]
    return found


def what_is_wrong(command: Command) -> str:
    """Empty if every name in it is one of something; otherwise what is not."""
    words = shlex.split(command.text.replace(".venv/bin/", "").partition(" | ")[0].partition(" > ")[0])
    while words and (words[0] == "sudo" or "=" in words[0]):
        words = words[1:]
    match words:
        case ["overlane", *rest]:
            return _wrong_in_overlane(rest)
        case ["make", *targets]:
            makefile = (PROJECT / "Makefile").read_text()
            missing = [word for word in targets if "=" not in word and f"\n{word}:" not in makefile]
            return f"the Makefile has no {missing}" if missing else ""
        case ["python", script, *rest] if script.endswith(".py"):
            return _wrong_in_script(script, rest)
        case ["python", "-m", "pytest", *rest]:
            missing = [word for word in rest if not word.startswith("-") and not (PROJECT / word).exists()]
            return f"there is no {missing}" if missing else ""
        case _:
            return ""


def _wrong_in_overlane(words: list[str]) -> str:
    """Asks the parser that the command line itself uses; values are not looked at, so that FILE may stand for one."""
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="overlane")
    while hasattr(command, "list_commands") and words and re.fullmatch(r"[a-z][a-z|-]*", words[0]):
        names, *words = words
        for name in names.split("|"):
            inner = command.get_command(context, name)
            if inner is None:
                return f"there is no command {name}"
        command, context = inner, command.context_class(inner, info_name=name, parent=context)
    if hasattr(command, "list_commands"):
        return f"{words[0]} is no command" if words and not words[0].startswith(("-", "…", ".")) else ""
    words = [word for word in words if word not in ("…", "...")]
    if words and words[-1].startswith("--"):
        words = [*words, "VALUE"]  # an option may be spoken of without one
    try:
        command.make_parser(context).parse_args(words)
    except Exception as refused:  # of whichever library reads the command line
        return str(refused) or type(refused).__name__
    return ""


def _wrong_in_script(script: str, words: list[str]) -> str:
    path = PROJECT / script
    if not path.exists():
        return f"there is no {script}"
    sources = path.read_text() + "".join(file.read_text() for file in path.parent.glob("_*.py"))
    unknown = [word for word in words if word.startswith("--") and f'"{word.partition("=")[0]}"' not in sources]
    return f"{script} has no {unknown}" if unknown else ""
