"""What the demo shows of a real run of the pipeline, and the commands that read the plans of one."""

import subprocess
import sys
from io import StringIO

import pytest
from pipelinestory import Story, rows, the_story
from rich.console import Console

from overlane.cli.simulation.demo import LINKS_SHOWN, show_plan, show_results
from overlane.core.units import MS
from overlane.demo.pipeline_results import read_results
from overlane.sim.story import network_of
from sparks import GROUP

pytestmark = [GROUP, pytest.mark.slow]

PLANS = ("allocate", "casebase", "paths", "channels")


@pytest.fixture(scope="module")
def story() -> Story:
    return the_story()


def test_the_demo_reads_every_link_topic_and_hour_of_a_run_and_shows_the_worst_links_and_changes(story: Story) -> None:
    lessons = read_results(story.out / "latest")
    true = {tuple(link["ends"]) for link in story.truth["links"]}
    assert {(row["broker"], row["peer"]) for row in lessons.links} == true
    failures = [row["failure"] for row in lessons.links]
    assert failures == sorted(failures, reverse=True)
    judged = {(row["topic"], row["hour_s"]) for row in rows(story.second, "compliance") if row["scope"] == "topic"}
    assert [(row["topic"], row["hour_s"]) for row in lessons.topics] == sorted(judged)
    evident = [row for row in rows(story.second, "reliability") if row["failure_planned"] is not None]
    assert {link.ends for link in lessons.plan.links} == {
        (row["broker"], row["peer"]) for row in evident if row["kind"] == "link"
    }
    assert {(row["broker"], row["peer"]) for row in evident if row["failures"] and row["kind"] == "link"} <= true
    assert 0 < len(lessons.plan.links) <= len(true)

    told = StringIO()
    console = Console(file=told, width=200)
    show_results(console, lessons)
    show_plan(console, network_of(dict.fromkeys(true, MS), {}), lessons.plan)
    lines = [" ".join(line.split()) for line in told.getvalue().splitlines()]
    for row in lessons.links[:LINKS_SHOWN]:
        assert any(line.startswith(f"{row['broker']} - {row['peer']} {row['failure']:.1%} ") for line in lines), lines
    for row in lessons.topics:
        assert any(line.startswith(f"{row['topic']} {row['deliveries']} ") for line in lines), lines
    changes = max(lessons.plan.links, key=lambda link: link.failure)
    worst = [line for line in lines if line.startswith(f"link {'-'.join(sorted(changes.ends))}, failure ")]
    assert [line.split()[-1] for line in worst] == [f"{changes.failure:.2%}"], lines


@pytest.mark.parametrize("name", PLANS)
def test_the_plans_of_a_run_are_problems_that_plan_commands_solve(story: Story, name: str) -> None:
    problem = story.out / "latest" / "plans" / f"{name}.json"
    command = [sys.executable, "-m", "overlane", "plan", name, str(problem)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
