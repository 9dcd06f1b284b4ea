"""Plans of a domain: the case base, what is solved, and what is read from outside."""

from random import Random

import msgspec
import pytest

from overlane.items.plans import (
    BadDomainPlan,
    DomainState,
    PlannedBroker,
    PlannedItem,
    check_plan,
    domain_plan,
    failure_states,
    fitted,
    make_plan,
    pack_plan,
    problem_of,
    solve,
    unpack_plan,
)
from overlane.items.policy import Place, is_sound, moves, promoted, spread_out
from overlane.items.rates import exceedance
from overlane.network.plan import BadPlan, read_plan

ITEMS = [PlannedItem(f"i{number}", 100.0 + 10 * number, number == 0) for number in range(6)]
ROWS = [[900.0 if row == column else 300.0 * (row % 2 == column % 2) for column in range(6)] for row in range(6)]
BROKERS = [PlannedBroker(name, 500.0) for name in ("a", "b", "c", "d")]
PLAN = make_plan(ITEMS, ROWS, BROKERS, 0.02, version=3)
NAMES = [item.name for item in ITEMS]


def test_the_normal_plan_keeps_the_risk_and_has_a_mirror_for_every_item() -> None:
    assert is_sound(PLAN.places, NAMES, "abcd")
    problem = problem_of(PLAN)
    carried: dict[str, list[int]] = {}
    for index, item in enumerate(ITEMS):
        place = PLAN.places[item.name]
        for broker in (place.primary, place.mirror) if item.critical else (place.primary,):
            carried.setdefault(broker, []).append(index)
    for broker, indices in carried.items():
        mean = sum(ITEMS[index].mean for index in indices)
        variance = sum(problem.covariance[one, other] for one in indices for other in indices)
        assert exceedance(mean, variance, 500.0) == pytest.approx(PLAN.risk[broker], abs=1e-9)
        assert PLAN.risk[broker] < 0.02


def test_every_state_is_sound_and_moves_few_items() -> None:
    plan = PLAN
    for missing in failure_states(PLAN):
        state = solve(PLAN, missing)
        assert is_sound(state.places, NAMES, sorted(PLAN.names() - missing))
        lost = [item for item, place in PLAN.places.items() if {place.primary, place.mirror} & missing]
        if state.status == "kept":
            assert set(moves(PLAN.places, state.places)) >= set(lost)
        plan = plan.with_state(state)
        assert plan.state(missing) == state
    assert unpack_plan(pack_plan(plan)) == plan


def test_a_promotion_moves_what_has_lost_its_primary_and_nothing_else() -> None:
    luck = Random(5)
    for _ in range(200):
        brokers = [f"b{number}" for number in range(luck.randint(2, 6))]
        items = [f"i{number}" for number in range(luck.randint(1, 12))]
        places = spread_out(items, brokers)
        assert is_sound(places, items, brokers)
        alive = luck.sample(brokers, luck.randint(1, len(brokers)))
        after = promoted(places, items, alive)
        assert is_sound(after, items, alive)
        for item in items:
            before = places[item]
            if before.primary in alive:
                assert after[item].primary == before.primary
                if before.mirror in alive:
                    assert after[item] == before
            elif before.mirror in alive:
                assert after[item].primary == before.mirror


def test_a_plan_is_fitted_to_the_items_of_the_file() -> None:
    plan = PLAN.with_state(solve(PLAN, frozenset("a")))
    wanted = {"i1": True, "i4": False, "new": False}
    found = fitted(plan, wanted)
    assert found is not None
    assert [(item.name, item.mean, item.critical) for item in found.items] == [
        ("i1", 110.0, True),
        ("i4", 140.0, False),
    ]
    assert found.covariance == ((900.0,), (0.0, 900.0))
    check_plan(found)
    assert fitted(plan, {"other": False}) is None
    assert fitted(plan, {item.name: item.critical for item in ITEMS}) is plan


@pytest.mark.parametrize(
    "changes",
    [
        {"places": {**PLAN.places, "i0": Place("a", "a")}},
        {"places": {**PLAN.places, "i0": Place("zz", "a")}},
        {"places": {item: place for item, place in PLAN.places.items() if item != "i0"}},
        {"states": (DomainState(("a",), {"i0": Place("a", "b")}),)},
        {"states": (DomainState(("zz",)),)},
        {"states": (DomainState(("a", "b", "c", "d")),)},
        {"covariance": PLAN.covariance[:-1]},
        {"covariance": (*PLAN.covariance[:-1], (1e9,) * 6)},
        {"brokers": ()},
    ],
)
def test_a_plan_from_outside_is_checked(changes: dict[str, object]) -> None:
    with pytest.raises(BadDomainPlan):
        unpack_plan(pack_plan(msgspec.structs.replace(PLAN, **changes)))


def test_a_plan_that_is_applied_becomes_that_of_the_domain_with_its_case_base() -> None:
    state = solve(PLAN, frozenset("a"))
    told = {
        "made_ns": 1,
        "domains": {
            "west": {
                "items": [{"name": one.name, "mean": one.mean} for one in ITEMS],
                "covariance": ROWS,
                "brokers": [{"name": one.name, "capacity": one.capacity} for one in BROKERS],
                "primary": {item: place.primary for item, place in PLAN.places.items()},
                "mirror": {item: place.mirror for item, place in PLAN.places.items()},
                "states": [
                    {
                        "failed": ["a"],
                        "primary": {item: place.primary for item, place in state.places.items()},
                        "mirror": {item: place.mirror for item, place in state.places.items()},
                        "status": state.status,
                        "risk": state.risk,
                    },
                    {"off": ["b"], "primary": {}, "mirror": {}},
                ],
            }
        },
    }
    forecast = read_plan(msgspec.json.encode(told)).domains["west"]
    found = domain_plan(forecast, 9, {one.name: one.critical for one in ITEMS})
    assert (found.version, found.items, found.places) == (9, PLAN.items, PLAN.places)
    assert found.state(frozenset("a")) == state
    assert found.state(frozenset("b")) is None
    told["domains"]["west"]["primary"]["i0"] = "nowhere"  # type: ignore[index]
    with pytest.raises(BadPlan, match="nowhere"):
        read_plan(msgspec.json.encode(told))


def test_bytes_that_are_no_plan_are_refused() -> None:
    packed = pack_plan(PLAN)
    for wrong in (b"", b"plan", packed[:-5], packed[:20] + b"xx" + packed[22:]):
        with pytest.raises(BadDomainPlan):
            unpack_plan(wrong)
