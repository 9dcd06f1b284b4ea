"""For all tests: randomised ones are not judged by the clock and say how to repeat what they found; running brokers."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import dead_workers
from brokers import any_broker, mortal_broker, our_broker, our_mortal_broker
from cost_report import Costs, write_costs
from cost_report import add_option as add_costs_option
from examples import register_profiles
from failed_tests import add_option, write_failed
from workorder import group_of, longest_first

__all__ = ["any_broker", "mortal_broker", "our_broker", "our_mortal_broker"]

GARBAGE_AT = 20_000
"""Objects more than before that make Python look for garbage; its own default is 700."""

register_profiles()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Tests run in the background of a shell: commands that tests interrupt would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_option(parser)
    add_costs_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs())
    config.pluginmanager.register(dead_workers)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    write_failed(terminalreporter, config)
    write_costs(terminalreporter, config)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = longest_first(items)
    for item in items:
        group = group_of(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is loaded now stays: to look through it for garbage again and again took 7 % of the CPU time of a soak."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AT)


@pytest.fixture(scope="module")
def bench_folder() -> Iterator[None]:
    """What is in bench/ can be imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
        yield
