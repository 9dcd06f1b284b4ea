"""A link that works stays, whatever else is dialled, refused, answered twice or never; one that only seems to work is
noticed.

Two real brokers, b and m, are linked, m dialling b through a tunnel. Two more neighbours of m are played here: a, with
a lesser name than m, and z, with a greater.
"""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from time import monotonic

import pytest
from tunnels import Tunnel

from brokers import free_port
from overlane.core.units import SECOND
from overlane.core.wire import frame_codec
from overlane.node.links.dialling.replacing import SAME_MOMENT
from overlane.node.links.greeting import Credentials, Greeting
from overlays import Member, RealOverlay
from waiting import eventually

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
LINKS = {"b-m": 'latency = "1ms"', "a-m": 'latency = "1ms"', "m-z": 'latency = "1ms"'}


class Place:
    """Where a neighbour that is played here is dialled."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._server = socket.create_server((host, int(port)))

    @property
    def address(self) -> str:
        return "{}:{}".format(*self._server.getsockname())

    @property
    def was_dialled(self) -> bool:
        return bool(select.select([self._server], [], [], 0)[0])

    def dialled_now(self) -> socket.socket:
        """Not before this was asked for, and given up since."""
        while self.was_dialled:
            self.dialled().close()
        return self.dialled()

    def dialled(self) -> socket.socket:
        self._server.settimeout(PATIENCE_S)
        return self._server.accept()[0]

    def close(self) -> None:
        self._server.close()


class Stage:
    def __init__(self, net: RealOverlay, tunnel: Tunnel, silent: Place, places: dict[str, Place]) -> None:
        self.m, self.b = net["m"], net["b"]
        self.net = net
        self.tunnel = tunnel
        self.silent = silent
        self.places = places
        self.began_s = monotonic()

    def link_with_b(self) -> dict[str, object]:
        answer = self.m.ask("/links")
        assert isinstance(answer, dict)
        return next(one for one in answer["items"] if one["peer"] == "b")

    def is_up(self) -> bool:
        return self.link_with_b()["state"] == "up"

    def losses(self) -> int:
        """How often m and b have lost each other, as they tell it."""
        told = self.m.log.read_text() + self.b.log.read_text()
        return sum(
            told.count(words) for words in ("connection to b lost", "link to b:", "connection to m lost", "link to m:")
        )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    net = RealOverlay(tmp_path_factory.mktemp("hold"), LINKS)
    b, m = net["b"], net["m"]
    played = {name: net.members.pop(name) for name in ("a", "z")}
    tunnel, silent = Tunnel(b.overlay), Place(f"127.0.0.1:{free_port()}")
    reach = {
        b: f'reach = ["{tunnel.address}"]',
        m: "reach = []",
        played["a"]: f'reach = ["127.0.0.1:{free_port()}", "{played["a"].overlay}"]',  # nobody is there
        played["z"]: f'reach = ["{silent.address}", "{played["z"].overlay}"]',  # nobody answers there
    }
    text = net.file.read_text()
    for member, line in reach.items():
        text = text.replace(member.table(), f"{member.table()}{line}\n")
    for name in played:
        text += f'\n[[events]]\nat = "1h"\njoin = "{name}"\n'
    net.file.write_text(text)
    places = {name: Place(member.overlay) for name, member in played.items()}
    try:
        net.start()
        yield Stage(net, tunnel, silent, places)
    finally:
        net.end()
        tunnel.close()
        for place in (silent, *places.values()):
            place.close()


def dial(member: Member) -> socket.socket:
    host, port = member.overlay.split(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def greet(connection: socket.socket, name: str, dials: str = "") -> None:
    """Be this neighbour of m, the dialled one unless it dials."""
    greeting = Greeting(Credentials(name, None, None, True), os.urandom(16), dials)
    connection.settimeout(PATIENCE_S)
    connection.sendall(greeting.opening())
    while not greeting.is_done:
        said = connection.recv(1)  # no more than the greeting: what follows is looked at by others
        assert said, "closed during the greeting"
        connection.sendall(greeting.receive(said)[0])


def is_closed(connection: socket.socket) -> bool:
    """By m, sooner or later."""
    connection.settimeout(PATIENCE_S)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def speaks(connection: socket.socket) -> bool:
    """Whether m says something over it."""
    connection.settimeout(PATIENCE_S)
    return bool(connection.recv(65536))


def of_two_at_once(stage: Stage, name: str, stays: str) -> None:
    """m has dialled a neighbour, at its second address after the first was of no use, while it has dialled m."""
    before = stage.losses()
    with closing(stage.places[name].dialled_now()) as by_m, closing(dial(stage.m)) as by_neighbour:
        greet(by_neighbour, name, "m")
        greet(by_m, name)
        both = {"m": by_m, name: by_neighbour}
        kept = both.pop(stays)
        (other,) = both.values()
        assert is_closed(other)
        assert speaks(kept)
        kept.sendall(frame_codec.hello(name, 1))
        assert speaks(kept)
    eventually(stage.is_up, "up", PATIENCE_S)
    assert stage.losses() == before


def test_of_two_connections_dialled_at_once_that_of_a_lesser_neighbour_stays(stage: Stage) -> None:
    of_two_at_once(stage, "a", stays="a")


def test_trying_a_dead_neighbour_again_and_again_costs_the_healthy_link_nothing(stage: Stage) -> None:
    before = stage.losses(), stage.tunnel.count
    for _ in range(2):
        stage.places["a"].dialled().close()
    eventually(stage.is_up, "up", PATIENCE_S)
    assert (stage.losses(), stage.tunnel.count) == before


def test_of_two_connections_dialled_at_once_ours_stays_with_a_greater_neighbour(stage: Stage) -> None:
    of_two_at_once(stage, "z", stays="m")
    assert stage.silent.was_dialled  # and did not answer


def test_a_second_connection_of_a_neighbour_is_turned_away_while_the_first_works(stage: Stage) -> None:
    eventually(lambda: monotonic() - stage.began_s > SAME_MOMENT / SECOND, "not dialled at the same moment")
    lost, before = stage.losses(), stage.link_with_b()
    for _ in range(3):
        with closing(dial(stage.m)) as second:
            greet(second, "b", "m")
            assert is_closed(second)
    after = stage.link_with_b()
    assert stage.losses() == lost
    for way in ("bytes_in", "bytes_out"):
        assert int(str(after[way])) >= int(str(before[way]))


def test_a_connection_over_which_nothing_passes_any_more_is_noticed_and_made_anew(stage: Stage) -> None:
    """Although datagrams beside it still do: they do not go through the tunnel."""
    eventually(stage.is_up, "up", PATIENCE_S)
    lost, dialled = stage.losses(), stage.tunnel.count
    stage.tunnel.is_silent = True
    stage.net.wait_until(lambda: stage.losses() > lost, "noticed", PATIENCE_S)
    stage.tunnel.is_silent = False
    stage.net.wait_until(lambda: stage.tunnel.count > dialled and stage.is_up(), "linked again", PATIENCE_S)
