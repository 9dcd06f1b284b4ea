"""Who uses which bundles: what is kept report by report is what all reports together say."""

from hypothesis import given
from hypothesis import strategies as st

from overlane.coordination.uses import Uses

REPORT = st.tuples(st.sampled_from("abcd"), st.frozensets(st.integers(0, 5)))


@given(reports=st.lists(REPORT))
def test_users_and_bundles_are_those_of_the_last_report_of_each_broker(
    reports: list[tuple[str, frozenset[int]]],
) -> None:
    uses = Uses()
    for broker, bundles in reports:
        uses.replace(broker, bundles)
    last = dict(reports)
    assert uses.bundles() == frozenset[int]().union(*last.values())
    for bundle in range(6):
        assert uses.users(bundle) == {broker for broker, bundles in last.items() if bundle in bundles}
