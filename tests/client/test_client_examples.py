"""The examples run, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from brokers import RunningBroker, free_port

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples" / "clients"
WITHIN_S = 60


def run(name: str, *arguments: str) -> tuple[int, str, str]:
    return run_python(str(EXAMPLES / name), *arguments)


def run_python(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def test_what_one_publishes_the_other_shows(our_broker: RunningBroker) -> None:
    command = [sys.executable, str(EXAMPLES / "subscribe.py"), our_broker.address, "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        assert run("publish.py", our_broker.address) == (0, "published\n", "")
        shown = listener.stdout.read().splitlines()
    reading = "{'overlane-deadline': '400ms'}"
    alarm = "{'overlane-deadline': '60ms', 'overlane-reliability': 'reliable', 'celsius': '90'}"
    assert sorted(shown) == [
        f"alarms/7 overheating {alarm}",
        f"plant/7/temperature 21 {reading}",
        f"plant/7/temperature 22 {reading}",
        f"plant/7/temperature 90 {reading}",
    ]


def test_the_first_example_of_the_guide_prints_what_the_guide_says(our_broker: RunningBroker) -> None:
    page = (PROJECT / "docs" / "client.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```\n\nIt prints `([^`]+)`", page, re.MULTILINE | re.DOTALL)
    assert found
    program = found[1].replace("127.0.0.1:1883", our_broker.address)
    assert our_broker.address in program
    assert run_python("-c", program) == (0, f"{found[2]}\n", "")


def test_questions_get_their_answers(our_broker: RunningBroker) -> None:
    assert run("request_reply.py", our_broker.address) == (0, "{3: 9, 5: 25, 12: 144}\n", "")


def test_orders_outlive_a_crash(our_broker: RunningBroker) -> None:
    status, output, errors = run("reliable_orders.py", our_broker.address)
    assert (status, errors) == (0, "")
    assert output.splitlines() == [
        "done: order 1",
        "crashed while working on order 2",
        "done: order 2",
        "done: order 3",
        "done: order 4",
    ]


@pytest.mark.parametrize("name", ["publish.py", "subscribe.py", "request_reply.py"])
def test_without_a_broker_an_example_says_so(name: str) -> None:
    status, output, errors = run(name, f"127.0.0.1:{free_port()}")
    assert (status, output) == (1, "")
    assert "nothing listens there" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: str(path.name))
def test_an_example_fits_a_screen(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 50
