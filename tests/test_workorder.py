"""Workers take what takes longest first, and what shares a broker together."""

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from workorder import group_of, longest_first

def pytest_collection_modifyitems(items):
    items[:] = longest_first(items)

@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    for item in session.items:
        print("taken", group_of(item), item.name)
"""
FIRST = """
import pytest

def test_fast(): ...

@pytest.mark.slow
def test_slow(): ...

def test_fast_too(): ...
"""
SECOND = """
import pytest

pytestmark = pytest.mark.slow

@pytest.fixture(scope="module")
def broker(): ...

@pytest.fixture(scope="module")
def bench_folder(): ...

def test_one(broker): ...
def test_alone(bench_folder): ...
def test_two(broker): ...
"""
THIRD = """
import pytest

@pytest.mark.xdist_group("spark")
def test_of_spark(): ...

def test_no_spark(): ...
"""


def test_spark_comes_first_then_what_is_slow_and_files_stay_together(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.syspath_prepend(str(request.path.parent))
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    xdist_group\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_first=FIRST, test_second=SECOND, test_third=THIRD)
    told = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider", "--collect-only", "-q").outlines
    assert [line.split(maxsplit=1)[1] for line in told if line.startswith("taken")] == [
        "spark test_of_spark",
        "None test_slow",
        "test_second.py test_one",
        "None test_alone",
        "test_second.py test_two",
        "test_first.py test_fast",
        "test_first.py test_fast_too",
        "test_third.py test_no_spark",
    ]
