"""The plan book: what is taken, what is refused, and what is still there after the end."""

from pathlib import Path

import pytest

from overlane.network.plan import BadPlan, LinkForecast, Plan
from overlane.node.admin.plan_history import KEPT_MAX, PlanHistory, StalePlan


def plan(version: int, made_ns: int | None = None, failure: float = 0.1) -> Plan:
    made_ns = version if made_ns is None else made_ns
    return Plan(made_ns=made_ns, version=version, links=(LinkForecast(("a", "b"), failure),))


def test_what_was_followed_is_followed_after_the_end(tmp_path: Path) -> None:
    book = PlanHistory(tmp_path)
    book.take(plan(1))
    book.take(plan(2))
    again = PlanHistory(tmp_path)
    assert (again.version, again.followed, sorted(again.kept)) == (2, plan(2), [1, 2])


def test_going_back_is_remembered_and_does_not_make_old_versions_new(tmp_path: Path) -> None:
    book = PlanHistory(tmp_path)
    book.take(plan(1))
    book.take(plan(2))
    book.roll_back(None)
    again = PlanHistory(tmp_path)
    assert (again.version, again.newest) == (1, 2)
    with pytest.raises(StalePlan, match="not newer than version 2"):
        again.take(plan(2, failure=0.2))


def test_going_back_from_the_first_follows_none() -> None:
    book = PlanHistory(None)
    book.take(plan(1))
    book.roll_back(None)
    assert (book.version, book.followed, book.newest) == (0, None, 1)


def test_an_older_version_and_older_history_are_refused() -> None:
    book = PlanHistory(None)
    book.take(plan(5, made_ns=100))
    for stale in (plan(4, made_ns=200), plan(6, made_ns=99)):
        with pytest.raises(StalePlan):
            book.take(stale)
    assert book.version == 5


def test_the_same_again_changes_nothing() -> None:
    book = PlanHistory(None)
    book.take(plan(5))
    book.take(plan(5))
    assert (book.version, sorted(book.kept)) == (5, [5])


def test_a_plan_without_a_version_is_refused() -> None:
    with pytest.raises(BadPlan, match="version"):
        PlanHistory(None).take(plan(0, made_ns=1))


def test_a_version_that_is_not_kept_cannot_be_gone_back_to() -> None:
    book = PlanHistory(None)
    book.take(plan(1))
    with pytest.raises(StalePlan, match="kept are: 1"):
        book.roll_back(9)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    book = PlanHistory(tmp_path)
    for version in range(1, KEPT_MAX + 6):
        book.take(plan(version))
    assert sorted(PlanHistory(tmp_path).kept) == list(range(6, KEPT_MAX + 6))


def test_a_damaged_plan_is_put_aside_and_the_rest_serves(tmp_path: Path) -> None:
    book = PlanHistory(tmp_path)
    book.take(plan(1))
    book.take(plan(2))
    (tmp_path / "plans" / "000002.json").write_bytes(b'{"version": 2, "made')
    again = PlanHistory(tmp_path)
    assert (again.version, sorted(again.kept)) == (0, [1])
    assert (tmp_path / "plans" / "000002.damaged").exists()


def test_a_plan_that_cannot_be_kept_is_not_followed(tmp_path: Path) -> None:
    book = PlanHistory(tmp_path)
    book.take(plan(1))
    (tmp_path / "plans" / ".000002.json.new").mkdir()  # no file can be made there
    with pytest.raises(OSError, match="directory"):
        book.take(plan(2))
    assert (book.version, PlanHistory(tmp_path).version) == (1, 1)
