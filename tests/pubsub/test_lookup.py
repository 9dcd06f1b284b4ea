"""Where a session of a domain is found, and that there is one."""

from dataclasses import replace
from random import Random

import pytest
from lookup_world import Client, World

from overlane.core.units import MS
from overlane.pubsub.sessions.domain import (
    Answer,
    Ask,
    Discard,
    Domain,
    DomainPeer,
    HeldSession,
    Holding,
    decode,
    encode,
)
from overlane.pubsub.sessions.lookup import LOOKUP_WITHIN, Found, SessionLookup
from overlane.pubsub.timers import Timers

SEEDS = 300


def connected(world: World, at: str, **how: bool) -> Client:
    client = world.connect(at, **how)  # type: ignore[arg-type]
    world.settle()
    return client


def test_a_broker_without_peers_decides_at_once() -> None:
    world = World("a")
    client = world.connect("a")
    assert world.place("a")
    assert (client.at, world.wires) == ("a", {})


def test_a_client_that_comes_back_elsewhere_finds_its_session() -> None:
    world = World()
    assert connected(world, "c").at == "c"
    world.leave("c")
    assert connected(world, "a").at == "c"
    assert world.holders() == "c"


def test_a_client_that_is_connected_elsewhere_takes_its_session_over() -> None:
    world = World()
    first = connected(world, "b")
    second = connected(world, "a")
    assert (second.at, first.is_taken_over, world.holders()) == ("b", True, "b")


def test_clean_start_ends_the_session_elsewhere_and_its_connection() -> None:
    world = World()
    first = connected(world, "b")
    assert connected(world, "c", is_clean=True).at == "c"
    assert (first.is_taken_over, world.holders()) == (True, "c")


def test_a_session_that_ends_with_its_connection_is_not_gone_to() -> None:
    world = World()
    first = connected(world, "b", is_clean=True, is_kept=False)
    assert connected(world, "a").at == "a"
    assert (first.is_taken_over, world.holders()) == (True, "a")


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_of_clients_that_come_at_once_the_least_broker_makes_the_session(order: str, is_clean: bool) -> None:
    world = World()
    clients = [world.connect(at, is_clean=is_clean) for at in order]
    world.settle()
    assert [client.at for client in clients] == ["a", "a", "a"]
    assert sum(not client.is_taken_over for client in clients) == 1
    assert world.holders() == "a"


def test_a_registered_broker_that_is_not_linked_is_waited_for_and_then_the_client_is_turned_away() -> None:
    world = World()
    world.break_link("a", "b")
    client = world.connect("a")
    world.settle(LOOKUP_WITHIN - MS)
    assert (client.at, client.is_refused) == (None, False)
    world.settle(2 * MS)
    assert (client.at, client.is_refused) == (None, True)


def test_a_broker_that_is_linked_in_time_is_asked_then() -> None:
    world = World()
    connected(world, "b")
    world.break_link("a", "b")
    client = world.connect("a")
    world.settle(100 * MS)
    world.heal()
    world.settle(50 * MS)
    assert client.at == "b"


def test_a_broker_that_is_away_is_not_waited_for() -> None:
    world = World()
    world.break_link("a", "b")
    world.register("a", "c")
    client = world.connect("a")
    world.settle(0)
    assert client.at == "a"


def test_a_broker_whose_registration_ends_is_waited_for_no_longer() -> None:
    world = World()
    world.break_link("a", "b")
    client = world.connect("a")
    world.settle(100 * MS)
    world.register("a", "c")
    world.settle(0)
    assert client.at == "a"


def test_who_has_its_session_here_needs_no_answer() -> None:
    world = World()
    connected(world, "a")
    world.leave("a")
    world.break_link("a", "b")
    assert connected(world, "a").at == "a"


def test_a_broker_that_has_just_gone_on_resumes_its_sessions_before_others_are_linked() -> None:
    world = World()
    connected(world, "a")
    world.leave("a")
    world.break_link("a", "b")
    fresh, later = world.connect("a", "fresh"), world.connect("a")
    world.settle(LOOKUP_WITHIN // 2)
    world.brokers["a"].lookup.follow(replace(world.domain_of("a"), continued_until_ns=world.now + MS), world.now)
    world.settle(0)
    assert (fresh.at, later.at) == (None, "a")  # who has no session here may have one at the other
    world.leave("a")
    world.settle(MS)
    again = world.connect("a")
    world.settle(0)
    assert again.at is None  # it has gone on for a while


def test_a_clean_start_does_not_wait_for_a_broker_that_is_not_linked() -> None:
    world = World()
    world.break_link("a", "b")
    client = world.connect("a", is_clean=True)
    world.settle(0)
    assert client.at == "a"


def test_an_answer_that_is_lost_costs_no_more_than_the_time_of_a_search() -> None:
    world = World()
    connected(world, "c")
    client = world.connect("a")
    while world.deliver("a", "b") or world.deliver("a", "c"):
        pass
    world.break_link("a", "b")
    world.settle()
    assert client.at == "c"


def test_of_two_sessions_the_one_that_was_claimed_later_counts_and_the_other_ends() -> None:
    world = World()
    connected(world, "b")
    world.crash("b")
    world.register("a", "c")
    assert connected(world, "c").at == "c"
    world.start("b")
    world.register("a", "b", "c")
    assert world.holders() == "bc"
    assert connected(world, "a").at == "c"
    assert world.holders() == "c"


def test_a_clock_that_is_behind_does_not_revive_a_session_that_was_replaced() -> None:
    world = World()
    connected(world, "b", is_clean=True, is_kept=False)
    world.brokers["b"].sessions.all["x"].claimed_ns += 1_000_000 * MS
    connected(world, "a")
    assert world.brokers["a"].sessions.all["x"].claimed_ns > world.now


def test_a_broker_of_another_domain_is_not_answered_and_discards_nothing() -> None:
    world = World()
    connected(world, "b")
    said: list[bytes] = []

    def send(_peer: str, body: bytes, _now: int) -> bool:
        said.append(body)
        return True

    world.brokers["b"].send = send
    for message in (Ask(1, "x", True), Ask(2, "x", False), Discard("x", 1 << 62), Answer(1, HeldSession(Holding.KEPT))):
        world.brokers["b"].lookup.heard("z", encode(message), world.now)
    assert (said, world.holders()) == ([], "b")


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x93\x09\x01\x02", b"\x94\x01\x01\xa1x\x05", encode([1, 2])])
def test_what_is_no_message_changes_nothing(body: bytes) -> None:
    world = World()
    connected(world, "b")
    world.brokers["b"].lookup.heard("a", body, world.now)
    assert (decode(body), world.holders()) == (None, "b")


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    world = World()
    world.brokers["a"].lookup.heard("b", encode(Answer(7, HeldSession(Holding.KEPT, 5))), world.now)
    assert not world.brokers["a"].found


def test_a_client_that_goes_while_it_is_searched_for_leaves_nothing_behind() -> None:
    world = World()
    world.connect("a")
    world.brokers["a"].lookup.settle((0, False))
    world.settle()
    assert (world.holders(), len(world.brokers["a"].found)) == ("", 0)
    assert connected(world, "c").at == "c"


def test_whoever_has_decided_is_found_by_a_lesser_name() -> None:
    """c has found nobody, and is about to open the session; a asks now."""
    world = World("ac")
    at_c = world.connect("c")
    assert world.deliver("c", "a")
    assert world.deliver("a", "c")
    at_a = world.connect("a")
    world.settle()
    assert (at_c.at, at_a.at, world.holders()) == ("c", "c", "c")


def test_a_question_of_a_lesser_name_counts_though_it_has_answered_before() -> None:
    """c waits for b, and has a's answer already, when a begins to search itself."""
    world = World()
    at_c = world.connect("c")
    assert world.deliver("c", "a")
    assert world.deliver("a", "c")
    at_a = world.connect("a")
    assert world.deliver("a", "c")
    world.settle()
    assert (at_c.at, at_a.at, world.holders()) == ("a", "a", "a")


def test_a_connection_that_is_about_to_be_replaced_does_not_hide_who_replaces_it() -> None:
    """At b a session that is not kept is being replaced when a asks for it."""
    world = World("ab")
    connected(world, "b", is_clean=True, is_kept=False)
    at_b = world.connect("b", is_clean=True)
    at_a = world.connect("a")
    world.settle()
    assert (at_a.at, at_b.at, world.holders()) == ("a", "a", "a")


@pytest.mark.parametrize("holding", [Holding.KEPT, Holding.FOR_EVER])
def test_a_session_that_never_expires_is_told_as_such(holding: Holding) -> None:
    found: list[Found] = []

    class NoSessions:
        def held(self, *_: object) -> HeldSession:
            return HeldSession()

        def give_up(self, *_: object) -> None: ...

    lookup = SessionLookup("a", NoSessions(), Timers(), lambda *_: True, found.append)
    lookup.follow(Domain({}, (DomainPeer("b"),)), 0)
    lookup.begin("key", "x", False, 0)
    lookup.heard("b", encode(Answer(1, HeldSession(holding, 5))), 0)
    assert found == [Found("key", "b", holding is Holding.FOR_EVER)]


def test_addresses_of_the_same_kind_are_told_and_not_too_many() -> None:
    peers = tuple(DomainPeer(f"p{number}", {"mqtt": f"p{number}:1"}) for number in range(20))
    domain = Domain({"mqtt": "me:1", "websocket": "me:2"}, (*peers, DomainPeer("w", {"websocket": "w:2"})))
    assert domain.alternatives("mqtt", with_own=False) == [f"p{number}:1" for number in range(8)]
    assert domain.alternatives("websocket", with_own=True) == ["me:2", "w:2"]
    assert domain.alternatives("mqtt_tls", with_own=True) == []
    assert (domain.address("w", "websocket"), domain.address("w", "mqtt"), domain.address("?", "mqtt")) == (
        "w:2",
        None,
        None,
    )


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 50))
def test_in_a_domain_without_faults_there_is_always_one_session_and_most_are_let_in(first_seed: int) -> None:
    """Who is not has met with another that came at the same moment."""
    refused = clients = 0
    for seed in range(first_seed, first_seed + 50):
        world, luck = World("abcd", seed), Random(seed)
        for _ in range(40):
            if luck.random() < 0.3:
                world.connect(luck.choice("abcd"), is_clean=luck.random() < 0.3, is_kept=luck.random() < 0.8)
            elif luck.random() < 0.1:
                world.settle(luck.randrange(50) * MS)
            world.step()
        world.settle()
        assert len(world.holders()) <= 1, f"seed {seed}"
        assert all(client.at is not None or client.is_refused for client in world.clients), f"seed {seed}"
        refused += sum(client.is_refused for client in world.clients)
        clients += len(world.clients)
        assert sum(not client.is_taken_over for client in world.clients if client.at) <= 1, f"seed {seed}"
    assert refused < clients / 5


@pytest.mark.parametrize("first_seed", range(0, SEEDS, 50))
def test_after_any_faults_the_next_client_leaves_one_session(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        world, luck = World("abcd", seed), Random(seed)
        for _ in range(60):
            match luck.choices(("connect", "cut", "heal", "crash", "start", "register", "wait", "step"), k=1)[0]:
                case "connect":
                    living = [name for name, one in world.brokers.items() if one.is_up]
                    if living:
                        world.connect(luck.choice(living), is_clean=luck.random() < 0.3)
                case "cut":
                    world.break_link(*luck.sample("abcd", 2))
                case "heal":
                    world.heal()
                case "crash":
                    if world.brokers[name := luck.choice("abcd")].is_up:
                        world.crash(name)
                case "start":
                    world.start(luck.choice("abcd"))
                case "register":
                    world.register(*(name for name in "abcd" if luck.random() < 0.7))
                case "wait":
                    world.wait(luck.randrange(400) * MS)
                case _:
                    world.step()
        world.heal()
        for name in "abcd":
            world.start(name)
        world.register(*"abcd")
        world.settle()
        latest = max(
            (kept.claimed_ns for one in world.brokers.values() for kept in one.sessions.all.values()), default=0
        )
        holders = [name for name, one in world.brokers.items() if "x" in one.sessions.all]
        winners = [name for name in holders if world.brokers[name].sessions.all["x"].claimed_ns == latest]
        last = world.connect(luck.choice("abcd"))
        world.settle()
        assert last.at is not None, f"seed {seed}"
        assert last.at == (min(winners) if winners else last.at), f"seed {seed}"
        assert world.holders() == last.at, f"seed {seed}"
