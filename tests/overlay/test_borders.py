"""What may leave a running broker and enter another is checked at both, each by a file that only it has."""

import asyncio
from collections.abc import Iterator

import pytest

from overlane.client import Client, connect
from overlays import Member, RealOverlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

RULES = {
    "a": """
[[federation]]
broker = "a"
with = "c"
leave = ["open/#", "told/#"]
[[federation]]
broker = "a"
with = "b"
leave = ["#"]
""",
    "b": "",
    "c": """
[[federation]]
broker = "c"
with = "a"
enter = ["open/#", "closed/#"]
[[federation]]
broker = "c"
with = "b"
enter = ["#"]
""",
}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    """a - b - c. Nothing of a's rules is known to c, nor of c's to a."""
    directory = tmp_path_factory.mktemp("borders")
    net = RealOverlay(directory, {"a-b": 'latency = "1ms"', "b-c": 'latency = "1ms"'})
    for name, member in net.members.items():
        own = directory / f"{name}.toml"
        own.write_text(net.file.read_text() + RULES[name])
        member.use(own)
    try:
        net.start()
        yield net
    finally:
        net.end()


def refused(member: Member) -> int:
    answer = member.ask("/status")
    assert isinstance(answer, dict)
    found = answer["overlay"]["refused_at_border"]
    assert isinstance(found, int)
    return found


class Ear:
    def __init__(self, client: Client) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._messages = client.subscribe("#", qos=1)

    async def listen(self) -> None:
        async for message in self._messages:
            self.heard.append((message.topic, bytes(message.body)))

    def of(self, source: str) -> set[str]:
        return {topic for topic, body in self.heard if body == source.encode()}


def test_only_what_may_leave_one_broker_and_enter_the_other_crosses(line: RealOverlay) -> None:
    topics = {"open/x", "told/x", "closed/x"}

    async def story() -> tuple[set[str], set[str], set[str]]:
        async with (
            connect(line["a"].mqtt) as at_a,
            connect(line["b"].mqtt) as at_b,
            connect(line["c"].mqtt) as at_c,
        ):
            middle, far = Ear(at_b), Ear(at_c)
            listening = [asyncio.create_task(ear.listen()) for ear in (middle, far)]
            while not ({"open/probe"} <= far.of("a") & middle.of("a") and "open/probe" in far.of("b")):
                await at_a.publish("open/probe", b"a", qos=1)
                await at_b.publish("open/probe", b"b", qos=1)
                await asyncio.sleep(0.05)
            before = refused(line["c"])
            for topic in sorted(topics):
                await at_a.publish(topic, b"a", qos=1)
                await at_b.publish(topic, b"b", qos=1)
            await at_a.publish("open/last", b"a", qos=1)
            await eventually_async(lambda: "open/last" in far.of("a") & middle.of("a"), "the last one there", 30.0)
            await eventually_async(lambda: topics <= far.of("b"), "all of b there", 30.0)
            # Told of at the border of c: what a lets out and c not in. What a keeps never comes so far.
            assert refused(line["c"]) - before == 1
            for task in listening:
                task.cancel()
            return far.of("a") & topics, middle.of("a") & topics, far.of("b") & topics

    assert asyncio.run(story()) == ({"open/x"}, topics, topics)


def test_what_is_retained_crosses_no_border_that_it_may_not(line: RealOverlay) -> None:
    async def story() -> list[tuple[str, bytes]]:
        async with connect(line["a"].mqtt) as here:
            for topic in ("closed/kept", "told/kept", "open/kept"):
                await here.publish(topic, b"kept", qos=1, retain=True)
        while True:
            async with connect(line["c"].mqtt) as late:
                ear = Ear(late)
                listening = asyncio.create_task(ear.listen())
                while not ear.heard:
                    await late.publish("own/probe", b"c")
                    await asyncio.sleep(0.05)
                listening.cancel()
            if ("open/kept", b"kept") in ear.heard:
                return [one for one in ear.heard if one[1] == b"kept"]

    assert asyncio.run(asyncio.wait_for(story(), 60.0)) == [("open/kept", b"kept")]
