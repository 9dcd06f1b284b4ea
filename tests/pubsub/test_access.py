"""Access rules: who may publish and receive what, whatever names clients give themselves."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overlane.core.topics import BadTopic, matches
from overlane.pubsub import access as access_module
from overlane.pubsub.access import Access, Rule, check_pattern

HOUSE = Access(
    [
        Rule(user="alice", publish=("sensors/%u/#", "alarms/1"), subscribe=("alarms/#", "$SYS/broker/#")),
        Rule(user="alice", subscribe=("sensors/+/temperature",)),
        Rule(user="*", publish=("clients/%c/out",), subscribe=("clients/%c/in", "news")),
        Rule(user="anonymous", subscribe=("news",)),
        Rule(user="root", publish=("#",), subscribe=("#",)),
    ]
)


@pytest.mark.parametrize(
    ("user", "client", "topic", "allowed"),
    [
        ("alice", "c1", "sensors/alice", True),
        ("alice", "c1", "sensors/alice/temperature/kitchen", True),
        ("alice", "c1", "sensors/bob/temperature", False),
        ("alice", "c1", "sensors", False),
        ("alice", "c1", "alarms/1", True),
        ("alice", "c1", "alarms/2", False),
        ("alice", "c1", "clients/c1/out", True),
        ("alice", "c1", "clients/c2/out", False),
        ("bob", "c1", "clients/c1/out", True),
        ("bob", "c1", "sensors/bob", False),
        (None, "c1", "clients/c1/out", False),
        (None, "c1", "news", False),
        ("root", "c1", "anything/at/all", True),
        ("root", "c1", "$SYS/broker/uptime", False),
        ("root", "c1", "$other", False),
    ],
)
def test_publishing_needs_a_rule_that_matches_the_topic(
    user: str | None, client: str, topic: str, allowed: bool
) -> None:
    assert HOUSE.may_publish(user, client, topic) is allowed


@pytest.mark.parametrize(
    ("user", "client", "topic", "allowed"),
    [
        ("alice", "c1", "alarms", True),
        ("alice", "c1", "alarms/fire/1", True),
        ("alice", "c1", "sensors/bob/temperature", True),
        ("alice", "c1", "sensors/bob/humidity", False),
        ("alice", "c1", "$SYS/broker/uptime", True),
        ("alice", "c1", "$SYS/clients", False),
        ("alice", "c1", "news", True),
        ("alice", "c1", "clients/c1/in", True),
        ("alice", "c1", "clients/c1/out", False),
        ("bob", "c2", "clients/c1/in", False),
        (None, "c1", "news", True),
        (None, "c1", "alarms", False),
        ("root", "c1", "anything/at/all", True),
        ("root", "c1", "$SYS/broker/uptime", False),
    ],
)
def test_receiving_needs_a_rule_that_matches_the_topic(
    user: str | None, client: str, topic: str, allowed: bool
) -> None:
    assert HOUSE.may_receive(user, client, topic) is allowed


@pytest.mark.parametrize(
    ("user", "client", "topic_filter", "allowed"),
    [
        ("alice", "c1", "alarms/#", True),
        ("alice", "c1", "alarms/+/1", True),
        ("alice", "c1", "alarms/fire", True),
        ("alice", "c1", "#", False),
        ("alice", "c1", "+", False),
        ("alice", "c1", "sensors/+/temperature", True),
        ("alice", "c1", "sensors/+/+", False),
        ("alice", "c1", "sensors/#", False),
        ("alice", "c1", "$SYS/broker/#", True),
        ("alice", "c1", "$SYS/#", False),
        ("alice", "c1", "clients/c1/in", True),
        ("alice", "c1", "clients/+/in", False),
        (None, "c1", "news", True),
        (None, "c1", "+", False),
        ("root", "c1", "#", True),
        ("root", "c1", "+/#", True),
        ("root", "c1", "$SYS/#", False),
    ],
)
def test_subscribing_needs_a_rule_that_covers_the_whole_filter(
    user: str | None, client: str, topic_filter: str, allowed: bool
) -> None:
    assert HOUSE.may_subscribe(user, client, topic_filter) is allowed


@pytest.mark.parametrize("user", [None, "alice"])
def test_without_rules_everything_is_allowed_but_publishing_where_the_server_speaks(user: str | None) -> None:
    access = Access()
    rights = access.rights(user, "c1")
    assert rights.everything
    assert [access.may_publish(user, "c1", topic) for topic in ("a/b", "$SYS/x", "$", "a/$b")] == [
        True,
        False,
        False,
        True,
    ]
    assert access.may_subscribe(user, "c1", "#")
    assert access.may_subscribe(user, "c1", "$SYS/#")
    assert access.may_receive(user, "c1", "$SYS/x")
    assert not HOUSE.rights(user, "c1").everything


def test_a_rule_without_patterns_closes_the_house() -> None:
    access = Access([Rule(user="alice")])
    assert not access.may_publish("bob", "c1", "a")
    assert not access.may_receive(None, "c1", "a")
    assert not access.may_subscribe("alice", "c1", "a")


@pytest.mark.parametrize("rule_user", ["anonymous", ""])
@pytest.mark.parametrize("user", ["anonymous", "*", ""])
def test_no_name_makes_somebody_who_logged_in_anonymous(rule_user: str, user: str) -> None:
    access = Access([Rule(user=rule_user, publish=("a",))])
    assert access.may_publish(None, "c1", "a")
    assert not access.may_publish(user, "c1", "a")


def test_a_user_called_star_has_the_rights_of_everybody_and_no_others() -> None:
    access = Access([Rule(user="*", publish=("all",)), Rule(user="alice", publish=("hers",))])
    assert access.may_publish("*", "c1", "all")
    assert not access.may_publish("*", "c1", "hers")


@pytest.mark.parametrize("name", ["+", "#", "a/b", "/", "a+", "#a", "a/#", "", "+/secret"])
def test_a_name_that_would_widen_a_rule_matches_nothing(name: str) -> None:
    access = Access(
        [
            Rule(user="*", publish=("u/%u/x", "u/%u/#"), subscribe=("u/%u/x", "u/%u/#")),
            Rule(user="*", publish=("c/%c/x", "c/%c/#"), subscribe=("c/%c/x", "c/%c/#")),
        ]
    )
    for user, client, first in ((name, "c1", "u"), ("alice", name, "c")):
        for topic in (f"{first}/a/x", f"{first}/{name}/x", f"{first}//x", f"{first}/a/b/x"):
            assert not access.may_publish(user, client, topic)
            assert not access.may_receive(user, client, topic)
            assert not access.may_subscribe(user, client, topic)
        for wide in (f"{first}/+/x", f"{first}/#", f"{first}/{name}/x", f"{first}/a/#"):
            assert not access.may_subscribe(user, client, wide)


def test_a_name_that_begins_with_a_dollar_does_not_reach_the_servers_topics() -> None:
    access = Access([Rule(user="*", subscribe=("%u/#", "%c/#", "home/%u/#"))])
    assert not access.may_receive("$SYS", "c1", "$SYS/x")
    assert not access.may_receive("alice", "$SYS", "$SYS/x")
    assert not access.may_subscribe("$SYS", "$SYS", "$SYS/#")
    assert access.may_receive("$SYS", "c1", "home/$SYS/x")


def test_a_user_called_like_a_placeholder_is_not_filled_in_twice() -> None:
    access = Access([Rule(user="*", publish=("u/%u", "b/%u/%c"))])
    assert not access.may_publish("%c", "victim", "u/victim")
    assert access.may_publish("%c", "victim", "u/%c")
    assert access.may_publish("%c", "%u", "b/%c/%u")
    assert not access.may_publish("%c", "%u", "b/%u/%u")


def test_who_has_not_logged_in_has_no_user_name_to_fill_in() -> None:
    access = Access([Rule(user="anonymous", publish=("u/%u", "c/%c"))])
    assert not access.may_publish(None, "c1", "u/None")
    assert not access.may_publish(None, "c1", "u/")
    assert access.may_publish(None, "c1", "c/c1")


@pytest.mark.parametrize("pattern", ["", "a/%u-x", "%c%u", "x%c/#", "a/#/b", "a+", "%u%", "a\0b"])
def test_a_pattern_that_would_not_mean_what_it_seems_is_refused(pattern: str) -> None:
    with pytest.raises(BadTopic):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["%u", "%c/#", "a/%u/%c/+", "100%/x", "%x", "$SYS/#", "%/u"])
def test_a_good_pattern_is_not_refused(pattern: str) -> None:
    check_pattern(pattern)


names = st.sampled_from(["a", "b", "%c", "%u", "$s", "+", "#", "a/b", ""]) | st.text(max_size=4)
levels = st.sampled_from(["a", "b", "", "$s", "%u"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
pattern_levels = st.sampled_from(["a", "b", "", "$s", "+", "%u", "%c"])
patterns = (
    st.lists(pattern_levels, max_size=3).map(lambda parts: "/".join([*parts, "#"]))
    | st.lists(pattern_levels, min_size=1, max_size=4).map("/".join)
).filter(bool)
filters = patterns.filter(lambda pattern: "%c" not in pattern)
rules = st.lists(
    st.builds(
        Rule,
        user=st.sampled_from(["a", "b", "*", "anonymous"]),
        publish=st.lists(patterns, max_size=12).map(tuple),
        subscribe=st.lists(patterns, max_size=12).map(tuple),
        deny_publish=st.lists(patterns, max_size=2).map(tuple),
        deny_subscribe=st.lists(patterns, max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=4,
)
users = st.none() | names


def some_pattern_matches(patterns: list[str], user: str | None, client: str, topic: str) -> bool:
    """The definition, level by level and without any filter being made of a name."""

    def means(pattern: str) -> bool:
        wanted = pattern.split("/")
        given = topic.split("/")
        if topic.startswith("$") and wanted[0] in ("+", "#", "%u", "%c"):
            return False
        for depth, level in enumerate(wanted):
            if level == "#":
                return True
            if depth >= len(given):
                return False
            if level in ("%u", "%c"):
                # A level of a topic has no `/`, `+` or `#`, so a name that has one is never equal to it.
                if not given[depth] or given[depth] != (user if level == "%u" else client):
                    return False
            elif level not in ("+", given[depth]):
                return False
        return len(wanted) == len(given)

    return any(means(pattern) for pattern in patterns)


def has_usable_names(pattern: str, user: str | None, client: str) -> bool:
    named = {"%u": user, "%c": client}
    return all(
        name is not None and not any(sign in name for sign in "+#/")
        for level, name in named.items()
        if level in pattern.split("/")
    )


def patterns_for(given: list[Rule], user: str | None, action: str) -> list[str]:
    return [
        pattern
        for rule in given
        if (user is None if rule.user == "anonymous" else user is not None and rule.user in ("*", user))
        for pattern in getattr(rule, action)
    ]


def is_denied(given: list[Rule], user: str | None, client: str, action: str, topic: str) -> bool:
    """Some rule denies it. A name that cannot be a level stands for all of them."""
    named = {"%u": user, "%c": client}

    def widened(pattern: str) -> str:
        for level, name in named.items():
            if not name or any(sign in name for sign in "+#/"):
                pattern = "/".join("+" if one == level else one for one in pattern.split("/"))
        return pattern

    def means(pattern: str) -> bool:
        first, *others = pattern.split("/")
        name = named.get(first)
        if name is None:
            return some_pattern_matches([pattern], user, client, topic)
        # Unlike what a rule allows, what it denies may begin with a name that begins with a dollar.
        level, *below = topic.split("/")
        behind = ["/".join(["a", *others])]
        return level == name and some_pattern_matches(behind, user, client, "/".join(["a", *below]))

    denied = [widened(pattern) for pattern in patterns_for(given, user, f"deny_{action}")]
    return any(means(pattern) for pattern in denied)


@given(rules, users, names, st.lists(topics, min_size=1, max_size=6))
@example([Rule(user="b", subscribe=("#",), deny_subscribe=("%c/#",))], "b", "%u", ["b"])  # a name is filled in once
def test_a_topic_is_allowed_exactly_when_some_rule_allows_it_and_none_denies_it(
    given_rules: list[Rule], user: str | None, client: str, asked: list[str]
) -> None:
    access = Access(given_rules)
    receivable = [p for p in patterns_for(given_rules, user, "subscribe") if has_usable_names(p, user, client)]
    publishable = [p for p in patterns_for(given_rules, user, "publish") if has_usable_names(p, user, client)]
    for topic in asked * 2:  # the second time from memory
        assert access.may_receive(user, client, topic) is (
            some_pattern_matches(receivable, user, client, topic)
            and not is_denied(given_rules, user, client, "subscribe", topic)
        )
        assert access.may_publish(user, client, topic) is (
            not topic.startswith("$")
            and some_pattern_matches(publishable, user, client, topic)
            and not is_denied(given_rules, user, client, "publish", topic)
        )


def test_what_is_denied_counts_whatever_the_order_of_the_rules() -> None:
    allow = Rule(user="*", publish=("#",), subscribe=("#",))
    deny = Rule(user="guest", deny_publish=("valves/#",), deny_subscribe=("secret/#",))
    for order in ([allow, deny], [deny, allow]):
        access = Access(order)
        assert access.may_publish("alice", "c1", "valves/1")
        assert not access.may_publish("guest", "c1", "valves/1")
        assert access.may_publish("guest", "c1", "news")
        assert access.may_subscribe("guest", "c1", "#")
        assert access.may_receive("guest", "c1", "news")
        assert not access.may_receive("guest", "c1", "secret/plan")
        assert not access.may_subscribe("guest", "c1", "secret/+")


def test_a_name_that_would_narrow_what_is_denied_denies_it_for_all_names() -> None:
    access = Access([Rule(user="*", publish=("#",), deny_publish=("clients/%c/config",))])
    assert not access.may_publish("alice", "c1", "clients/c1/config")
    assert access.may_publish("alice", "c1", "clients/c2/config")
    assert not access.may_publish("alice", "c1/+", "clients/c2/config")


@given(rules, users, names, filters, st.lists(topics, max_size=20))
def test_whoever_may_subscribe_may_receive_all_that_the_filter_matches_but_what_is_denied(
    given_rules: list[Rule], user: str | None, client: str, topic_filter: str, asked: list[str]
) -> None:
    access = Access(given_rules)
    if access.may_subscribe(user, client, topic_filter):
        for topic in asked:
            is_kept_out = is_denied(given_rules, user, client, "subscribe", topic)
            assert access.may_receive(user, client, topic) or is_kept_out or not matches(topic_filter, topic)


@given(rules, st.lists(st.tuples(users, names, topics), max_size=30))
def test_what_is_remembered_of_one_client_is_never_taken_for_another(
    given_rules: list[Rule], asked: list[tuple[str | None, str, str]]
) -> None:
    remembers = Access(given_rules)
    for user, client, topic in asked:
        forgets = Access(given_rules)
        assert remembers.may_receive(user, client, topic) is forgets.may_receive(user, client, topic)
        assert remembers.may_publish(user, client, topic) is forgets.may_publish(user, client, topic)


def test_what_is_remembered_is_bounded_whatever_clients_call_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "USERS_REMEMBERED_MAX", 10)
    monkeypatch.setattr(access_module, "CLIENTS_REMEMBERED_MAX", 20)
    monkeypatch.setattr(access_module, "VERDICTS_REMEMBERED_MAX", 30)
    access = Access([Rule(user="*", publish=("%u/%c/#",), subscribe=("%u/#",))])
    for number in range(1000):
        user, client = f"u{number % 50}", f"c{number}"
        assert access.may_publish(user, client, f"{user}/{client}/{number}")
        assert not access.may_publish(user, client, f"{user}/c{number + 1}/{number}")
        assert access.may_receive(user, client, f"{user}/{'x' * number}")
    assert len(access._users) <= 10
    assert len(access._clients) <= 20
    assert len(access._verdicts) <= 30
    assert all(len(topic) <= access_module.TOPIC_CHARS_REMEMBERED_MAX for _, topic in access._verdicts)


def test_clients_of_a_user_share_what_no_pattern_tells_apart() -> None:
    access = Access([Rule(user="alice", publish=("%u/#",)), Rule(user="bob", publish=("%c/#",))])
    assert access.rights("alice", "c1") is access.rights("alice", "c2")
    assert access.rights("bob", "c1") is not access.rights("bob", "c2")


def test_many_patterns_mean_the_same_as_few() -> None:
    many = Access([Rule(user="*", subscribe=tuple(f"sites/{number}/+/alarms" for number in range(200)))])
    assert many.may_receive("alice", "c1", "sites/137/door/alarms")
    assert not many.may_receive("alice", "c1", "sites/200/door/alarms")
    assert many.may_subscribe("alice", "c1", "sites/137/+/alarms")
    assert not many.may_subscribe("alice", "c1", "sites/+/door/alarms")
