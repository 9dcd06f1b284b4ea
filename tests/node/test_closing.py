"""The end of a session with ZooKeeper, for a process that ends."""

import asyncio
import threading

import pytest

from overlane.node.coordination.closing import close_soon


class Service:
    def __init__(self, *, is_away: bool) -> None:
        self.closed = threading.Event()
        self.is_back = threading.Event()
        if not is_away:
            self.is_back.set()

    def close(self) -> None:
        self.is_back.wait()
        self.closed.set()


def test_a_service_that_is_there_is_closed() -> None:
    service = Service(is_away=False)
    assert asyncio.run(close_soon(service, 60.0))
    assert service.closed.is_set()


@pytest.mark.filterwarnings("error")
def test_one_that_is_away_is_not_waited_for_and_keeps_nothing_alive() -> None:
    service = Service(is_away=True)
    assert not asyncio.run(close_soon(service, 0.05))
    assert all(one.daemon for one in threading.enumerate() if one.name == "closing-zookeeper")
    service.is_back.set()
    assert service.closed.wait(60.0)
