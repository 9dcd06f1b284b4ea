"""Subjects and topics: each has exactly one of the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.topics import check_filter, check_topic, matches
from overlane.nats.subjects import BadSubject, filter_of, group_of, subject_of, topic_of

CHARACTERS = "ab%25E2F0AD3/+#.*> \t\x7f\x01é"
LEVELS = st.text(CHARACTERS.replace("/", "").replace("+", "").replace("#", ""), max_size=8) | st.sampled_from(
    ["", "*", ">", "%", "%25", "%2A", "%252A", "%2E", "%252E", "%2F", "%252F", "%23"]
)
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
TOKENS = st.text([one for one in CHARACTERS if one not in ". \t\x7f\x01"], min_size=1, max_size=8) | st.sampled_from(
    ["%", "%25", "%2A", "%3E", "%252A", "%2E", "%252E", "%2F", "/", "+", "#", "%20"]
)
SUBJECTS = st.lists(TOKENS.filter(lambda one: one not in "*>"), min_size=1, max_size=4).map(".".join)


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("sensors.hall-3.temp", "sensors/hall-3/temp"),
        ("a%2Eb.c", "a.b/c"),
        ("a%20b", "a b"),
        ("a.%.b", "a//b"),
        ("%2A.%3E", "*/>"),
        ("a*b.>c", "a*b/>c"),
        ("a/b.c+d.#", "a%2Fb/c%2Bd/%23"),
        ("50%.100%25x", "50%/100%25x"),
        ("a%252Eb", "a%2Eb"),
        ("a%2Fb", "a%252Fb"),
        ("größe.ß", "größe/ß"),
        ("_INBOX.x.1", "_INBOX/x/1"),
    ],
)
def test_a_subject_has_one_topic_and_the_topic_that_subject(subject: str, topic: str) -> None:
    assert (topic_of(subject), subject_of(topic)) == (topic, subject)


@given(TOPICS)
def test_every_topic_comes_back_from_its_subject(topic: str) -> None:
    assert topic_of(subject_of(topic)) == topic


@given(SUBJECTS)
def test_every_subject_comes_back_from_its_topic(subject: str) -> None:
    topic = topic_of(subject)
    if topic:
        check_topic(topic)
    assert subject_of(topic) == subject


@given(st.lists(TOKENS | st.just("*"), min_size=1, max_size=3).map(".".join), SUBJECTS, st.booleans())
def test_a_filter_matches_the_topics_of_the_subjects_that_nats_matches(
    pattern: str, subject: str, is_open: bool
) -> None:
    tokens, wanted = subject.split("."), pattern.split(".")
    if ">" in wanted:
        return
    if is_open:
        wanted.append(">")
    topic_filter, topic = filter_of(".".join(wanted)), topic_of(subject)
    check_filter(topic_filter or "x")
    if not topic or not topic_filter:
        return
    fits = all(one in ("*", token) for one, token in zip(wanted, tokens, strict=False) if one != ">")
    expected = fits and (len(tokens) >= len(wanted) if is_open else len(tokens) == len(wanted))
    # MQTT's # matches the parent as well: such topics have fewer levels.
    assert (matches(topic_filter, topic) and topic.count("/") >= topic_filter.count("/")) == expected


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\0", "*", "a.>", "a.*.b"])
def test_what_is_no_subject_to_publish_on_is_refused(subject: str) -> None:
    with pytest.raises(BadSubject):
        topic_of(subject)


@pytest.mark.parametrize("subject", ["", "a..b", "a.>.b", "a b"])
def test_what_is_no_subject_to_subscribe_to_is_refused(subject: str) -> None:
    with pytest.raises(BadSubject):
        filter_of(subject)


def test_a_queue_group_is_the_name_of_a_shared_subscription() -> None:
    assert [group_of(one) for one in ("workers", "a.b", "a/b")] == ["workers", "a.b", "a%2Fb"]
    with pytest.raises(BadSubject):
        group_of("a b")
