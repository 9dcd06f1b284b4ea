"""Two brokers greet: nothing is believed that is not proven."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.errors import ProtocolViolation
from overlane.node.links.greeting import (
    CLIENT,
    HELLO_BYTES_MAX,
    KEY_PART_BYTES,
    LINK,
    Credentials,
    DatagramSession,
    Greeting,
    Offer,
)
from overlane.secret import Secret

SECRET = Secret(b"correct horse battery staple")


def credentials(
    me: str, secret: Secret | None = SECRET, certified: str | None = None, trusted: bool = False
) -> Credentials:
    return Credentials(me, secret, None if certified is None else frozenset(certified.split()), trusted)


def greet(dialler: Greeting, dialled: Greeting, step: int = 1 << 20) -> tuple[bytes, bytes]:
    """Let them talk, cut into pieces of `step` bytes; what each has got behind the greeting."""
    behind = {id(dialler): b"", id(dialled): b""}
    waiting = [(dialled, dialler.opening() + b"")]
    while waiting:
        listener, data = waiting.pop(0)
        other = dialled if listener is dialler else dialler
        for start in range(0, len(data), step):
            answer, rest = listener.receive(data[start : start + step])
            behind[id(listener)] += rest
            if answer:
                waiting.append((other, answer))
    return behind[id(dialler)], behind[id(dialled)]


def pair(one: Credentials, other: Credentials, wanted: str = "denver") -> tuple[Greeting, Greeting]:
    return Greeting(one, b"a" * 16, wanted), Greeting(other, b"b" * 16)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_brokers_that_share_a_secret_know_each_other(step: int) -> None:
    dialler, dialled = pair(credentials("seattle"), credentials("denver"))
    assert greet(dialler, dialled, step) == (b"", b"")
    assert (dialler.is_done, dialler.peer, dialled.is_done, dialled.peer) == (True, "denver", True, "seattle")


@pytest.mark.parametrize("name", ["seattle", "boise", "boise@seattle"])
def test_a_certificate_of_several_names_is_believed_to_be_any_of_them(name: str) -> None:
    dialler, dialled = pair(credentials(name, None), credentials("denver", None, certified="seattle boise"))
    dialler.credentials = credentials(name, None, certified="denver")
    greet(dialler, dialled)
    assert (dialled.is_done, dialled.peer) == (True, name)


def test_what_follows_the_greeting_is_handed_on_untouched() -> None:
    dialler, dialled = pair(credentials("seattle"), credentials("denver"))
    answer, _ = dialled.receive(dialler.opening())
    proof, rest = dialler.receive(answer + b"frames")
    assert (dialler.is_done, rest) == (True, b"frames")
    assert dialled.receive(proof + b"more") == (b"", b"more")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (credentials("seattle", Secret(b"wrong")), credentials("denver"), "does not know the secret"),
        (credentials("seattle", None, trusted=True), credentials("denver"), "does not know the secret"),
        (credentials("seattle", None), credentials("denver", None), "without certificate or secret"),
        (credentials("denver"), credentials("denver"), "our own name"),
        (credentials("seattle"), credentials("orlando"), "wants 'denver', this is orlando"),
        (credentials("seattle"), credentials("denver", certified="boise"), "its certificate says 'boise'"),
        (credentials("seattle"), credentials("denver", certified=""), "its certificate says 'nobody'"),
        (credentials("a@b"), credentials("denver", certified="b"), "its certificate says 'b'"),
        (credentials("a@b"), credentials("denver", certified="a"), "its certificate says 'a'"),
    ],
)
def test_who_cannot_prove_it_is_turned_away(one: Credentials, other: Credentials, said: str) -> None:
    dialler, dialled = pair(one, other)
    with pytest.raises(ProtocolViolation, match=said):
        greet(dialler, dialled)
    assert not dialled.is_done


def test_the_dialler_turns_away_who_answers_in_anothers_place() -> None:
    dialler = Greeting(credentials("seattle"), b"a" * 16, "denver")
    impostor = Greeting(credentials("orlando"), b"b" * 16)
    with pytest.raises(ProtocolViolation, match="wants 'denver'"):
        impostor.receive(dialler.opening())
    lying = Greeting(credentials("orlando"), b"b" * 16, "seattle").opening()
    with pytest.raises(ProtocolViolation, match="calls itself 'orlando', expected denver"):
        dialler.receive(lying)


def test_a_certificate_or_the_same_machine_stands_in_for_a_secret() -> None:
    for one, other in (
        (credentials("seattle", None, "denver"), credentials("denver", None, "seattle")),
        (credentials("seattle", None, trusted=True), credentials("denver", None, trusted=True)),
    ):
        dialler, dialled = pair(one, other)
        greet(dialler, dialled)
        assert dialler.is_done
        assert dialled.is_done


def test_a_proof_is_worth_nothing_on_another_connection() -> None:
    dialler, dialled = pair(credentials("seattle"), credentials("denver"))
    answer, _ = dialled.receive(dialler.opening())
    proof, _ = dialler.receive(answer)
    again = Greeting(credentials("denver"), b"c" * 16)
    again.receive(dialler.opening())
    with pytest.raises(ProtocolViolation, match="does not know the secret"):
        again.receive(proof)


def test_what_one_side_said_cannot_be_sent_back_to_it() -> None:
    dialler = Greeting(credentials("seattle"), b"a" * 16, "denver")
    with pytest.raises(ProtocolViolation):
        dialler.receive(dialler.opening())


def test_a_hello_that_promises_too_much_is_refused_before_it_comes() -> None:
    dialled = Greeting(credentials("denver"), b"b" * 16)
    with pytest.raises(ProtocolViolation, match="too long"):
        dialled.receive(b"OVLG\x02" + (HELLO_BYTES_MAX + 1).to_bytes(2))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_waited_for_but_never_believed(data: bytes) -> None:
    dialled = Greeting(credentials("denver"), b"b" * 16)
    try:
        dialled.receive(data)
    except ProtocolViolation:
        return
    assert not dialled.is_done


def offering(
    one: Credentials, other: Credentials, offers: tuple[Offer | None, Offer | None]
) -> tuple[DatagramSession | None, DatagramSession | None]:
    """The sessions of datagrams that two brokers have after their greeting."""
    dialler, dialled = Greeting(one, b"a" * 16, "denver", offers[0]), Greeting(other, b"b" * 16, "", offers[1])
    greet(dialler, dialled, 7)
    assert dialler.is_done
    assert dialled.is_done
    return dialler.session, dialled.session


PUBLIC = Offer(7001, 11, b""), Offer(7002, (1 << 64) - 1, b"")
PRIVATE = Offer(7001, 11, b"x" * KEY_PART_BYTES), Offer(7002, 22, b"y" * KEY_PART_BYTES)


def test_brokers_that_both_offer_datagrams_have_a_session_with_a_key_for_each_direction() -> None:
    here, there = offering(credentials("seattle"), credentials("denver"), PUBLIC)
    assert here is not None
    assert there is not None
    assert (here.ours, here.theirs, here.port) == (11, (1 << 64) - 1, 7002)
    assert (there.ours, there.theirs, there.port) == ((1 << 64) - 1, 11, 7001)
    assert here.key_out == there.key_in
    assert here.key_in == there.key_out
    assert here.key_in != here.key_out
    assert here.key_in is not None


def test_keys_differ_with_the_secret_and_with_what_was_said_in_private() -> None:
    nobody = None, "denver"
    known = [
        offering(credentials("seattle"), credentials("denver"), PUBLIC),
        offering(credentials("seattle", Secret(b"other")), credentials("denver", Secret(b"other")), PUBLIC),
        offering(credentials("seattle"), credentials("denver"), PRIVATE),
        offering(credentials("seattle", *nobody), credentials("denver", None, "seattle"), PRIVATE),
    ]
    keys = [here.key_out for here, _ in known if here is not None]
    assert None not in keys
    assert len(set(keys)) == len(known)


def test_without_secret_and_encryption_datagrams_have_a_session_and_no_key() -> None:
    open_door = credentials("seattle", None, trusted=True), credentials("denver", None, trusted=True)
    here, there = offering(*open_door, PUBLIC)
    assert here == DatagramSession(11, (1 << 64) - 1, 7002, None, None)
    assert there == DatagramSession((1 << 64) - 1, 11, 7001, None, None)


@pytest.mark.parametrize(
    "offers",
    [
        (None, PUBLIC[1]),
        (PUBLIC[0], None),
        (None, None),
        (PRIVATE[0], PUBLIC[1]),
        (PRIVATE[0], Offer(7002, 22, b"short")),
        (PUBLIC[0], Offer(0, 22, b"")),
        (PUBLIC[0], Offer(1 << 16, 22, b"")),
    ],
)
def test_where_one_does_not_offer_them_or_would_keep_less_secret_there_are_no_datagrams(
    offers: tuple[Offer | None, Offer | None],
) -> None:
    here, _ = offering(credentials("seattle"), credentials("denver"), offers)
    assert here is None


def test_an_offer_that_was_changed_on_the_way_is_noticed() -> None:
    dialler = Greeting(credentials("seattle"), b"a" * 16, "denver", PUBLIC[0])
    dialled = Greeting(credentials("denver"), b"b" * 16, "", PUBLIC[1])
    changed = Greeting(credentials("seattle"), b"a" * 16, "denver", Offer(9999, 11, b"")).opening()
    answer, _ = dialled.receive(changed)
    with pytest.raises(ProtocolViolation, match="does not know the secret"):
        dialler.receive(answer)


def test_the_dialler_says_what_the_connection_is_for() -> None:
    for purpose in (LINK, CLIENT):
        dialler = Greeting(credentials("seattle"), b"a" * 16, "denver", purpose=purpose)
        dialled = Greeting(credentials("denver"), b"b" * 16)
        greet(dialler, dialled, 5)
        assert (dialler.is_done, dialled.is_done, dialled.purpose) == (True, True, purpose)


def test_a_purpose_that_was_changed_on_the_way_is_noticed() -> None:
    link = Greeting(credentials("seattle"), b"a" * 16, "denver")
    client = Greeting(credentials("seattle"), b"a" * 16, "denver", purpose=CLIENT)
    dialled = Greeting(credentials("denver"), b"b" * 16)
    answer, _ = dialled.receive(client.opening())
    with pytest.raises(ProtocolViolation, match="does not know the secret"):
        link.receive(answer)
    client.receive(answer)
    with pytest.raises(ProtocolViolation, match="does not know the secret"):
        dialled.receive(link._proof(of_dialler=True))


def test_an_unknown_purpose_is_refused() -> None:
    dialler = Greeting(credentials("seattle"), b"a" * 16, "denver", purpose="tea")
    with pytest.raises(ProtocolViolation, match="the purpose 'tea', which is unknown"):
        Greeting(credentials("denver"), b"b" * 16).receive(dialler.opening())


def moving(dialler_moves: bytes) -> tuple[Greeting, Greeting]:
    return Greeting(credentials("seattle"), b"a" * 16, "denver", moves=dialler_moves), Greeting(
        credentials("denver"), b"b" * 16
    )


def test_both_ends_know_the_same_id_of_a_link_and_a_connection_may_continue_it() -> None:
    dialler, dialled = pair(credentials("seattle"), credentials("denver"))
    greet(dialler, dialled)
    assert (dialler.link_id, dialler.moves, dialled.moves) == (dialled.link_id, b"", b"")
    again = moving(dialler.link_id)
    assert greet(*again) == (b"", b"")
    assert [one.moves for one in again] == [dialler.link_id] * 2


@pytest.mark.parametrize("moves", [b"", b"x" * 16])
def test_an_id_of_a_link_that_was_changed_on_the_way_is_noticed(moves: bytes) -> None:
    dialler, dialled = moving(b"y" * 16)
    answer, _ = dialled.receive(moving(moves)[0].opening())
    with pytest.raises(ProtocolViolation, match="does not know the secret"):
        dialler.receive(answer)


def test_an_id_of_a_wrong_length_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="wrong length"):
        moving(b"")[1].receive(moving(b"too short")[0].opening())
