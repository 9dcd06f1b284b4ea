"""A broker that may open few files lets in fewer clients, and those it has, and its operators, notice nothing."""

import socket
from contextlib import ExitStack
from pathlib import Path

import mqtt5
import pytest
from stage import StrainedBroker, strained

from overlane.testbed.certificates import Authority
from waiting import eventually
from watched import let_in

FILES = 400
KNOCKS = 600


class PoorBroker(StrainedBroker):
    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", *super().command()]


@pytest.fixture
def broker(tmp_path: Path) -> PoorBroker:
    return PoorBroker(tmp_path, "connections_per_second = 10000\n", authority=Authority(tmp_path))


def exchange(port: int) -> None:
    """Two new clients hear each other."""
    with let_in(port, "speaker") as speaker, let_in(port, "listener") as listener:
        listener.subscribe("t")
        speaker.publish("t", b"heard", qos=0)
        assert listener.read(mqtt5.PublishPacket).payload == b"heard"


def test_more_connections_than_files_are_refused_and_counted_and_operators_see_it(broker: PoorBroker) -> None:
    with strained(broker), ExitStack() as crowd:
        with let_in(broker.port, "s") as speaker, let_in(broker.port, "l") as listener:
            listener.subscribe("t")
            for _ in range(KNOCKS):
                crowd.enter_context(socket.create_connection(("127.0.0.1", broker.port), 20))
            refused = broker.wait_for_status(lambda status: status["refused"], "refused")["refused"]
            assert 0 < refused["too many connections"] < KNOCKS
            speaker.publish("t", b"heard", qos=0)
            assert listener.read(mqtt5.PublishPacket).payload == b"heard"
        crowd.close()
        broker.wait_for_status(lambda status: status["connections"] == 0, "all gone")
        exchange(broker.port)
    assert f"the system allows {FILES} open files" in broker.log


def test_whoever_takes_all_files_by_tls_takes_nothing_from_those_who_are_there(broker: PoorBroker) -> None:
    with strained(broker), ExitStack() as crowd:
        with let_in(broker.port, "s") as speaker, let_in(broker.port, "l") as listener:
            listener.subscribe("t")
            for _ in range(KNOCKS):
                crowd.enter_context(socket.create_connection(("127.0.0.1", broker.tls_port), 20))
            speaker.publish("t", b"heard", qos=0)
            assert listener.read(mqtt5.PublishPacket).payload == b"heard"
        crowd.close()

        def is_let_in() -> bool:
            try:
                exchange(broker.port)
            except (OSError, AssertionError):
                return False
            return True

        eventually(is_let_in, "files are free again")
