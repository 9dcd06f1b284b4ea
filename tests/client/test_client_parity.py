"""What the client promises, at our broker and at Mosquitto alike."""

import asyncio
import itertools
from collections.abc import Callable

import pytest
from loops import in_a_loop, until

from brokers import RunningBroker
from overlane.client import (
    Client,
    Closed,
    Disconnected,
    InvalidRequest,
    Message,
    Qos,
    Subscription,
    TopicQos,
    Will,
    connect,
)

_topics = itertools.count()


@pytest.fixture
def topic() -> str:
    """One that no other test uses."""
    return f"parity/{next(_topics)}"


async def take(subscription: Subscription, count: int) -> list[Message]:
    messages = [await anext(subscription) for _ in range(count)]
    subscription.acknowledge()
    return messages


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


@pytest.mark.parametrize("qos", list(Qos))
@in_a_loop
async def test_a_message_arrives_as_it_was_published(any_broker: RunningBroker, topic: str, qos: Qos) -> None:
    async with connect(any_broker.address) as client, client.subscribe(f"{topic}/#", qos=qos) as subscription:
        await client.publish(
            f"{topic}/grüße",
            b"\x00body\xff",
            qos=qos,
            expiry="60s",
            properties=[("colour", "blue"), ("colour", "green"), ("size", "7")],
            content_type="application/x",
            response_topic="answers/here",
            correlation_data=b"\x01\x02",
        )
        message = await anext(subscription)
    assert (message.topic, message.body, message.qos) == (f"{topic}/grüße", b"\x00body\xff", qos)
    assert message.property_pairs == [("colour", "blue"), ("colour", "green"), ("size", "7")]
    assert message.properties == {"colour": "green", "size": "7"}
    assert (message.content_type, message.response_topic) == ("application/x", "answers/here")
    assert (message.correlation_data, message.retained, message.repeated) == (b"\x01\x02", False, False)
    assert message.expiry_s in (59, 60)
    assert message.age_ns is None


@in_a_loop
async def test_deadline_and_reliability_travel_as_user_properties(any_broker: RunningBroker, topic: str) -> None:
    alarms = TopicQos(deadline="60ms", reliability="reliable")
    async with connect(any_broker.address) as client, client.subscribe(topic, qos=2, deadline="50ms") as subscription:
        await client.publish(topic, "fire", qos=alarms, properties={"floor": "3"})
        message = await anext(subscription)
    assert message.qos is Qos.AT_LEAST_ONCE
    assert message.properties == {"overlane-deadline": "60ms", "overlane-reliability": "reliable", "floor": "3"}
    assert message.text == "fire"


@in_a_loop
async def test_a_stamp_tells_the_age(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client, client.subscribe(topic) as subscription:
        await client.publish(topic, stamp=True)
        message = await anext(subscription)
    assert message.age_ns is not None
    assert 0 < message.age_ns < 60_000_000_000


@pytest.mark.parametrize("qos", list(Qos))
@in_a_loop
async def test_many_messages_arrive_in_order(any_broker: RunningBroker, topic: str, qos: Qos) -> None:
    sent = [b"%d" % number for number in range(500)]
    async with connect(any_broker.address) as client, client.subscribe(topic, qos=qos) as subscription:
        publishing = asyncio.create_task(client.publish_many(topic, sent, qos=qos))
        assert bodies(await take(subscription, 500)) == sent
        assert await publishing == 500


@in_a_loop
async def test_publications_of_many_tasks_are_all_acknowledged(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client, client.subscribe(topic, qos=1) as subscription:
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(client.publish(topic, f"{number}", qos=1 + number % 2))
        arrived = {message.text for message in await take(subscription, 300)}
    assert arrived == {f"{number}" for number in range(300)}


@in_a_loop
async def test_each_subscription_gets_what_it_asked_for(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client:
        wide = client.subscribe(f"{topic}/#", qos=1)
        narrow = client.subscribe(f"{topic}/a", f"{topic}/b", qos=2)
        for level in ("a", "b", "c"):
            await client.publish(f"{topic}/{level}", level, qos=1)
        assert [message.text for message in await take(wide, 3)] == ["a", "b", "c"]
        assert [message.text for message in await take(narrow, 2)] == ["a", "b"]
        assert (wide.unread, narrow.unread) == (0, 0)


@in_a_loop
async def test_a_subscription_hears_what_is_published_after_it_was_made_without_waiting(
    any_broker: RunningBroker, topic: str
) -> None:
    async with connect(any_broker.address) as client:
        subscription = client.subscribe(topic)
        await client.publish(topic, "at once")
        assert (await anext(subscription)).text == "at once"


@in_a_loop
async def test_retained_messages_come_to_who_subscribes_later(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client:
        await client.publish(topic, "state", qos=1, retain=True)
        async with client.subscribe(topic) as subscription:
            message = await anext(subscription)
            assert (message.text, message.retained) == ("state", True)
            await client.publish(topic, "newer", qos=1, retain=True)
            message = await anext(subscription)
            assert (message.text, message.retained) == ("newer", False)
        async with client.subscribe(topic, retained="never") as subscription:
            await client.publish(topic, "live", qos=1)
            assert (await anext(subscription)).text == "live"
        await client.publish(topic, b"", qos=1, retain=True)


@in_a_loop
async def test_no_local_leaves_out_ones_own(any_broker: RunningBroker, topic: str) -> None:
    async with (
        connect(any_broker.address) as client,
        connect(any_broker.address) as other,
        client.subscribe(topic, no_local=True) as subscription,
    ):
        await client.publish(topic, "mine", qos=1)
        await other.publish(topic, "theirs", qos=1)
        assert (await anext(subscription)).text == "theirs"


@in_a_loop
async def test_a_shared_subscription_divides_the_messages(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as one, connect(any_broker.address) as two:
        shared = f"$share/workers/{topic}"
        async with one.subscribe(shared, qos=1) as first, two.subscribe(shared, qos=1) as second:
            await one.publish_many(topic, [b"%d" % number for number in range(20)], qos=1)
            await until(lambda: first.unread + second.unread == 20)
            assert first.unread > 0
            assert second.unread > 0


@in_a_loop
async def test_leaving_the_loop_ends_the_subscription(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client:
        await client.publish(topic, "kept", retain=True, qos=1)
        for _ in range(3):
            async for message in client.subscribe(topic):
                assert message.text == "kept"
                break
        await client.publish(topic, b"", retain=True, qos=1)


@in_a_loop
async def test_unsubscribing_lets_what_has_arrived_be_read_and_then_ends(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client:
        subscription = client.subscribe(topic, qos=1)
        await client.publish_many(topic, [b"1", b"2"], qos=1)
        await until(lambda: subscription.unread == 2)
        await subscription.unsubscribe()
        await client.publish(topic, "3", qos=1)
        assert [message.text async for message in subscription] == ["1", "2"]


@in_a_loop
async def test_batches_give_all_that_is_there(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client, client.subscribe(topic, qos=1) as subscription:
        await client.publish_many(topic, [b"%d" % number for number in range(50)], qos=1)
        read: list[bytes] = []
        async for batch in subscription.batches():
            read += bodies(batch)
            if len(read) == 50:
                break
    assert read == [b"%d" % number for number in range(50)]


@in_a_loop
async def test_the_same_filter_twice_and_two_readers_are_refused(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as client:
        subscription = client.subscribe(topic)
        with pytest.raises(InvalidRequest, match="already a subscription"):
            client.subscribe(topic)
        reader = asyncio.create_task(anext(subscription))
        await subscription.ready()
        with pytest.raises(InvalidRequest, match="only one task"):
            await anext(subscription)
        reader.cancel()


@in_a_loop
async def test_a_session_that_lasts_keeps_what_came_while_away(any_broker: RunningBroker, topic: str) -> None:
    def session(clean_start: bool | None = None) -> Client:
        name = topic.replace("/", "-")
        return connect(any_broker.address, client_id=name, session_expiry="1h", clean_start=clean_start)

    async with session(clean_start=True) as client:
        assert not client.session_present
        await client.subscribe(topic, qos=1).ready()
    async with connect(any_broker.address) as other:
        await other.publish_many(topic, [b"1", b"2", b"3"], qos=1)
    async with session() as client:
        assert client.session_present
        async with client.subscribe(topic, qos=1) as subscription:
            assert bodies(await take(subscription, 2)) == [b"1", b"2"]
    # Two were acknowledged, the third was never read.
    async with session() as client, client.subscribe(topic, qos=1) as subscription:
        assert bodies(await take(subscription, 1)) == [b"3"]
        await subscription.unsubscribe()


@in_a_loop
async def test_what_an_exception_leaves_unfinished_comes_again(any_broker: RunningBroker, topic: str) -> None:
    name = topic.replace("/", "-")
    read: list[bytes] = []

    async def attempt(number: int) -> None:
        async with connect(any_broker.address, client_id=name, session_expiry="1h") as client:
            subscription = client.subscribe(topic, qos=1)
            if number == 0:
                await client.publish_many(topic, [b"1", b"2", b"3"], qos=1)
            async for message in subscription:
                read.append(message.body)
                if message.body == b"2" and number < 2:
                    raise ZeroDivisionError
                if message.body == b"3":
                    await subscription.unsubscribe()

    for number in range(2):
        with pytest.raises(ZeroDivisionError):
            await attempt(number)
    await attempt(2)
    assert read == [b"1", b"2", b"2", b"2", b"3"]


@in_a_loop
async def test_messages_of_an_earlier_run_wait_until_they_are_claimed(any_broker: RunningBroker, topic: str) -> None:
    name = topic.replace("/", "-")
    async with connect(any_broker.address, client_id=name, session_expiry="1h") as client:
        await client.subscribe(f"{topic}/old", qos=1).ready()
    async with connect(any_broker.address) as other:
        await other.publish(f"{topic}/old", "from before", qos=1)
    async with connect(any_broker.address, client_id=name, session_expiry="1h") as client:
        # It takes the number that the other had before.
        new = client.subscribe(f"{topic}/new", qos=1)
        await client.publish(f"{topic}/new", "of now", qos=1)
        assert (await anext(new)).text == "of now"
        unclaimed = client.unclaimed()
        await until(lambda: unclaimed.unread == 1)
        old = client.subscribe(f"{topic}/old", qos=1)
        assert (await anext(old)).text == "from before"
        assert unclaimed.unread == 0
        await old.unsubscribe()
        await new.unsubscribe()


@in_a_loop
async def test_a_will_is_published_when_the_client_is_lost_and_not_when_it_leaves(
    any_broker: RunningBroker, topic: str
) -> None:
    will = Will(topic, "gone", qos=1, properties={"why": "lost"})
    async with connect(any_broker.address) as watcher, watcher.subscribe(topic, qos=1) as subscription:
        async with connect(any_broker.address, will=will):
            pass
        client = await connect(any_broker.address, client_id=topic.replace("/", "-"), will=will)
        # Taken over by another: for the broker the first is lost.
        async with connect(any_broker.address, client_id=topic.replace("/", "-")):
            message = await anext(subscription)
            assert (message.text, message.properties) == ("gone", {"why": "lost"})
        await client.close()
        assert subscription.unread == 0


@in_a_loop
async def test_a_client_that_is_taken_over_does_not_fight_back(our_broker: RunningBroker, topic: str) -> None:
    name = topic.replace("/", "-")
    first = await connect(our_broker.address, client_id=name)
    reading = first.subscribe(topic)
    await reading.ready()
    async with connect(our_broker.address, client_id=name) as second:
        with pytest.raises(Disconnected, match="taken over") as told:
            await anext(reading)
        assert told.value.code == 0x8E
        with pytest.raises(Disconnected):
            await first.publish(topic, qos=1)
        await first.close()
        assert second.connected


@in_a_loop
async def test_after_the_end_calls_say_so_and_iterators_end(any_broker: RunningBroker, topic: str) -> None:
    client = await connect(any_broker.address)
    subscription = client.subscribe(topic)
    await client.close()
    await client.close()
    assert [message async for message in subscription] == []
    with pytest.raises(Closed):
        await client.publish(topic, qos=1)
    with pytest.raises(Closed):
        client.subscribe(topic)


@in_a_loop
async def test_what_is_in_the_outbox_leaves_before_the_client_does(any_broker: RunningBroker, topic: str) -> None:
    async with connect(any_broker.address) as watcher, watcher.subscribe(topic) as subscription:
        async with connect(any_broker.address) as client:
            for number in range(100):
                await client.publish(topic, f"{number}")
        assert [message.text for message in await take(subscription, 100)] == [f"{number}" for number in range(100)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.publish("a/+", b""), "only in filters"),
        (lambda client: client.publish("", b""), "empty"),
        (lambda client: client.publish("a", 5), "expected bytes or str"),
        (lambda client: client.publish("a", "\ud800"), "not valid Unicode"),
        (lambda client: client.publish("a", b"", qos=3), "0, 1 or 2"),
        (lambda client: client.publish("a", b"", deadline="soon"), "60ms"),
        (lambda client: client.publish("a", b"", deadline="0s"), "above 0"),
        (lambda client: client.publish("a", b"", reliability="very"), "best-effort"),
        (lambda client: client.publish("a", b"", expiry="-1s"), "expected 0 or more"),
        (lambda client: client.publish("a", b"", properties={"a\0": "b"}), "U\\+0000"),
        (lambda client: client.publish("a", b"", response_topic="#"), "only in filters"),
        (lambda client: client.publish("a", b"", correlation_data=bytes(65536)), "65535"),
        (lambda client: client.subscribe("a/#/b").ready(), "last level"),
        (lambda client: client.subscribe().ready(), "at least one"),
        (lambda client: client.subscribe("a", "a").ready(), "duplicate"),
        (lambda client: client.subscribe("a", retained="maybe").ready(), "always, new, never"),
        (lambda client: client.subscribe("a", unread_max=0).ready(), "expected 1 or more"),
    ],
)
@in_a_loop
async def test_what_makes_no_sense_is_refused_before_it_is_sent(
    our_broker: RunningBroker, call: Callable[[Client], object], words: str
) -> None:
    async with connect(our_broker.address) as client:
        with pytest.raises(InvalidRequest, match=words):
            await call(client)  # type: ignore[misc]
        await client.publish("fine", qos=1)
