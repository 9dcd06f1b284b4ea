"""Link state: which advert wins, which links count, and when to advertise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from overlane.core.gossip.link_state import (
    CALM_AFTER,
    FORGET_AFTER,
    GAP_MAX,
    GAP_MIN,
    REFRESH_EVERY,
    REMEMBER_LEFT,
    AdvertThrottle,
    LinkStateTable,
    lifetime_s_for,
)
from overlane.core.links.link_health import LinkState
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Advert, LinkClaim

NOW = 90 * SECOND


def claim(peer: str, latency_ms: int = 10, loss: int = 0, state: LinkState = LinkState.UP) -> LinkClaim:
    return LinkClaim(peer, latency_ms * 1000, 100, loss, 0, int(state))


def advert(broker: str, *links: LinkClaim, sequence: int = 1, incarnation: int = 1, left: bool = False) -> Advert:
    return Advert(broker, incarnation, sequence, list(links), {}, 0, left)


def table(*adverts: Advert) -> LinkStateTable:
    made = LinkStateTable("a")
    for one in adverts:
        assert made.accept(one, NOW)
    return made


# Adverts


def test_the_newest_advert_wins_whatever_the_order() -> None:
    old, new, reborn = (
        advert("b", sequence=7),
        advert("b", claim("a"), sequence=8),
        advert("b", claim("c"), sequence=1, incarnation=2),
    )
    made = table(old, new, reborn)
    assert [made.accept(one, NOW) for one in (old, new, reborn)] == [False, False, False]
    assert made.adverts == {"b": reborn}
    assert made.version_of("b") == (2, 1)
    assert made.version_of("nobody") == (0, 0)


@given(st.permutations([advert("b", claim("a", at), sequence=at) for at in range(1, 6)]))
def test_any_order_of_adverts_ends_with_the_same_map(adverts: list[Advert]) -> None:
    made = table(advert("a", claim("b")))
    for one in adverts:
        made.accept(one, NOW)
    assert made.adverts["b"] == advert("b", claim("a", 5), sequence=5)


def test_an_advert_that_says_nothing_new_is_no_change_of_the_map() -> None:
    made = table(advert("b", claim("a")))
    before = made.changes
    assert made.accept(advert("b", claim("a"), sequence=2), NOW)
    assert made.changes == before
    assert made.accept(advert("b", claim("a", 11), sequence=3), NOW)
    assert made.changes == before + 1


def test_a_broker_ages_out_when_it_was_not_heard_of_for_long_but_never_oneself() -> None:
    made = table(advert("a", claim("b")), advert("b", claim("a")), advert("c"))
    made.accept(advert("c", sequence=2), NOW + SECOND)
    assert made.forget_silent(NOW + FORGET_AFTER) == []
    assert made.forget_silent(NOW + FORGET_AFTER + 1) == ["b"]
    assert (sorted(made.adverts), made.map.claims) == (["a", "c"], {})
    assert made.forget_silent(NOW + FORGET_AFTER + 1) == []


def test_a_broker_that_left_is_remembered_for_longer_than_one_that_fell_silent() -> None:
    made = table(advert("a"), advert("b", left=True))
    assert made.forget_silent(NOW + REMEMBER_LEFT) == []
    assert made.forget_silent(NOW + REMEMBER_LEFT + 1) == ["b"]
    assert REMEMBER_LEFT > 10 * FORGET_AFTER


def test_an_advert_counts_for_as_long_as_it_says() -> None:
    made = table(advert("a"), structs.replace(advert("b"), lifetime_s=1_000), advert("c"))
    assert made.forget_silent(NOW + FORGET_AFTER + 1) == ["c"]
    assert made.forget_silent(NOW + 1_000 * SECOND) == []
    assert made.forget_silent(NOW + 1_000 * SECOND + 1) == ["b"]


def test_how_long_an_advert_counts_is_no_change_of_the_map() -> None:
    made = table(advert("b", claim("a")))
    before = made.changes
    assert made.accept(structs.replace(advert("b", claim("a"), sequence=2), lifetime_s=1_000), NOW)
    assert made.changes == before


@pytest.mark.parametrize(("brokers", "per_hour"), [(2, 120), (20, 1_200), (200, 1_200), (1_000, 1_200), (4_096, 1_366)])
def test_all_brokers_together_repeat_no_more_in_a_large_overlay(brokers: int, per_hour: int) -> None:
    throttle = AdvertThrottle()
    throttle.said(structs.replace(advert("a"), lifetime_s=lifetime_s_for(brokers)), NOW)
    gap = throttle.next_deadline() - NOW
    assert not throttle.consider(advert("a"), NOW + gap - 1)
    assert throttle.consider(advert("a"), NOW + gap)
    assert -(-brokers * 3_600 * SECOND // gap) == per_hour


def test_the_map_is_drawn_once_per_news() -> None:
    made = table(advert("a", claim("b")), advert("b", claim("a")))
    first = made.map
    made.accept(advert("b", claim("a"), sequence=2), NOW)
    assert made.map is first
    made.accept(advert("b", claim("a", 30), sequence=3), NOW)
    assert made.map.claims == {("a", "b"): claim("b"), ("b", "a"): claim("a", 30)}


# When to advertise


class Speaker:
    def __init__(self) -> None:
        self.announcer = AdvertThrottle()
        self.said: list[Nanos] = []

    def considers(self, now: Nanos, *claims: LinkClaim, left: bool = False) -> bool:
        one = advert("a", *claims, left=left)
        goes_out = self.announcer.consider(one, now)
        if goes_out:
            self.announcer.said(one, now)
            self.said.append(now)
        return goes_out


def test_the_first_advert_and_a_real_change_go_out_at_once() -> None:
    speaker = Speaker()
    assert speaker.considers(NOW, claim("b"))
    assert speaker.considers(NOW + SECOND, claim("b"), claim("c"))
    assert speaker.considers(NOW + 2 * SECOND, claim("b"))


@pytest.mark.parametrize(
    ("after", "is_real"),
    [
        (claim("b", 100), False),
        (claim("b", 119), False),
        (claim("b", 121), True),
        (claim("b", 79), True),
        (claim("b", 100, loss=9_000), False),
        (claim("b", 100, loss=12_000), True),
        (claim("b", 100, state=LinkState.SUSPECT), True),
    ],
)
def test_a_change_by_a_hair_is_not_advertised(after: LinkClaim, is_real: bool) -> None:
    speaker = Speaker()
    speaker.considers(NOW, claim("b", 100))
    assert speaker.considers(NOW + SECOND, after) == is_real


def test_what_does_not_change_is_repeated_slowly() -> None:
    speaker = Speaker()
    speaker.considers(NOW, claim("b"))
    assert speaker.announcer.next_deadline() == NOW + REFRESH_EVERY
    assert not speaker.considers(NOW + REFRESH_EVERY - 1, claim("b"))
    assert speaker.considers(NOW + REFRESH_EVERY, claim("b"))


def test_changes_that_keep_coming_go_out_ever_more_slowly() -> None:
    speaker = Speaker()
    now = NOW
    while now < NOW + 20 * SECOND:
        speaker.considers(now, claim("b", 10 if now // MS % 2 else 50))
        now += MS
    gaps = [after - before for before, after in zip(speaker.said, speaker.said[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 2 * GAP_MIN
    assert GAP_MAX <= gaps[-1] <= GAP_MAX + 2 * MS
    assert len(speaker.said) < 10 + 20 * SECOND // GAP_MAX


def test_a_change_that_must_wait_asks_for_its_time_and_one_that_is_taken_back_does_not() -> None:
    speaker = Speaker()
    speaker.considers(NOW, claim("b"))
    assert not speaker.considers(NOW + 1, claim("b", 90))
    asked = speaker.announcer.next_deadline()
    assert NOW + 1 < asked <= NOW + 2 * GAP_MIN
    assert not speaker.considers(NOW + 2, claim("b"))
    assert speaker.announcer.next_deadline() == NOW + REFRESH_EVERY
    assert not speaker.considers(NOW + 3, claim("b", 90))
    assert speaker.considers(asked, claim("b", 90))


def test_after_a_calm_time_a_change_goes_out_quickly_again() -> None:
    speaker = Speaker()
    now = NOW
    while now < NOW + 10 * SECOND:
        speaker.considers(now, claim("b", 10 if now // MS % 2 else 50))
        now += MS
    calm = speaker.said[-1] + CALM_AFTER + 1
    assert speaker.considers(calm, claim("c"))
    assert speaker.considers(calm + 2 * GAP_MIN, claim("d"))


def test_what_happens_to_a_few_links_every_other_second_is_told_within_a_moment() -> None:
    speaker = Speaker()
    for turn in range(20):
        start = NOW + turn * 2 * SECOND
        for at, latency_ms in enumerate((30, 15, 60, 40) if turn % 2 else (20, 40, 80, 160)):
            noticed = start + at * 30 * MS
            if not speaker.considers(noticed, claim("b", latency_ms)):
                when = speaker.announcer.next_deadline()
                assert when - noticed < 200 * MS
                assert speaker.considers(when, claim("b", latency_ms))


def test_a_farewell_does_not_wait() -> None:
    speaker = Speaker()
    speaker.considers(NOW, claim("b"))
    assert speaker.considers(NOW + 1, left=True)


def test_nothing_is_due_before_the_first_word() -> None:
    assert AdvertThrottle().next_deadline() == NEVER
