"""Runs under other names: the same messages, and nothing that cannot be read."""

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.wire.parcel import MIXED_RUN
from overlane.mqtt import runs
from overlane.mqtt.run_names import rename_run
from overlane.pubsub.cluster.envelope import PROPERTIES
from overlane.pubsub.properties import Properties, encode_length


def longer(topic: str) -> str | None:
    return None if topic == "hidden" else f"plant/{topic}"


def same(properties: bytes) -> bytes:
    return properties


def mixed(*packets: mqtt5.PublishPacket) -> tuple[int, bytes]:
    return runs.pack_run(b"".join(one.write() for one in packets), len(packets), is_v5=True)


def test_a_mixed_run_stays_one_and_leaves_out_what_has_no_name() -> None:
    told = mqtt5.PublishPacket("a", b"1", user_properties=[("x", "y")])
    flags, body = mixed(told, mqtt5.PublishPacket("hidden", b"2"), mqtt5.PublishPacket("b", b"3"))
    topics, carried = rename_run(MIXED_RUN, flags, body, longer, same)
    renamed = mqtt5.PublishPacket("plant/a", b"1", user_properties=[("x", "y")])
    assert topics == ["plant/a", "plant/b"]
    assert carried == [(MIXED_RUN, *mixed(renamed, mqtt5.PublishPacket("plant/b", b"3")))]


def test_a_run_of_one_topic_and_a_short_message_alone_keep_their_form() -> None:
    flags, body = mixed(mqtt5.PublishPacket("a", b"1"), mqtt5.PublishPacket("a", b"2"))
    new = mixed(mqtt5.PublishPacket("plant/a", b"1"), mqtt5.PublishPacket("plant/a", b"2"))
    assert rename_run("a", flags, body, longer, same)[1] == [("plant/a", *new)]
    assert rename_run("a", *runs.pack_lone(b"x", is_v5=True), longer, same)[1] == [
        ("plant/a", *runs.pack_lone(b"x", is_v5=True))
    ]


def test_messages_that_become_too_long_are_carried_one_by_one() -> None:
    properties = Properties(user_properties=(("x", "y"),)).encode()
    told = mqtt5.PublishPacket("t" * 252, b"1", user_properties=[("x", "y")])
    _, carried = rename_run(MIXED_RUN, *mixed(told, mqtt5.PublishPacket("b", b"3")), longer, same)
    body = encode_length(len(properties)) + properties + b"1"
    assert carried == [("plant/" + "t" * 252, PROPERTIES, body), ("plant/b", 0, b"3")]
    lone = runs.pack_lone(b"x" * 120, is_v5=False)
    assert rename_run("a", *lone, longer, same)[1] == [("plant/a", 0, b"x" * 120)]


@pytest.mark.parametrize(
    ("topic", "flags", "body"),
    [
        ("a", runs.RUN, b"\0\0\0\2" + mqtt5.PublishPacket("a", b"1").write()),
        (MIXED_RUN, 0, b""),
        (MIXED_RUN, *mixed(mqtt5.PublishPacket("a", b"1", retain=True))),
        ("b", *mixed(mqtt5.PublishPacket("a", b"1"))),
    ],
)
def test_what_is_no_run_is_refused(topic: str, flags: int, body: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        rename_run(topic, flags, body, longer, same)


@given(st.sampled_from(["", "a"]), st.sampled_from([0x10, 0x30, 0x40, 0x60]), st.binary(max_size=60))
@examples(500)
def test_whatever_comes_is_read_or_refused(topic: str, flags: int, body: bytes) -> None:
    try:
        topics, _ = rename_run(topic, flags, body, longer, same)
    except (ValueError, IndexError):
        return
    assert len(topics) <= len(body) + 1


packets = st.builds(
    mqtt5.PublishPacket,
    st.sampled_from(["a", "b/c", "d" * 250, "hidden"]),
    st.binary(max_size=200) | st.just(b"x" * 16_100),
    user_properties=st.lists(st.tuples(st.text("xy", max_size=4), st.text("z", max_size=4)), max_size=2),
)


@given(st.lists(packets, min_size=1, max_size=8))
@examples(100)
def test_the_messages_are_the_same_and_in_order(sent: list[mqtt5.PublishPacket]) -> None:
    _, carried = rename_run(MIXED_RUN, *mixed(*sent), longer, same)
    got: list[tuple[str, bytes]] = []
    for topic, flags, body in carried:
        if flags & runs.RUN:
            run, _, is_v5 = runs.unpack_run(flags, body)
            got += [(name, payload) for name, payload, _ in runs.messages_of(run, is_v5)]
        else:
            start = 1 + body[0] if flags & PROPERTIES else 0
            got.append((topic, body[start:]))
    assert got == [(f"plant/{one.topic}", one.payload) for one in sent if one.topic != "hidden"]
