"""What may leave a running broker and enter another is checked at both, each by a file that only it has."""

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from urllib.request import urlopen

import mqtt5
import pytest
from typer.testing import CliRunner

from overlane.cli.main import app
from overlane.client import Client, connect
from overlays import Member, RealOverlay
from waiting import eventually, eventually_async
from watched import Caller, let_in

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


def refused_on_leave(member: Member) -> int:
    answer = member.ask("/status")
    assert isinstance(answer, dict)
    found = answer["refused"].get("border (leave)", 0)
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
            before, before_leaving = refused(line["c"]), refused_on_leave(line["a"])
            for topic in sorted(topics):
                await at_a.publish(topic, b"a", qos=1)
                await at_b.publish(topic, b"b", qos=1)
            await at_a.publish("open/last", b"a", qos=1)
            await eventually_async(lambda: "open/last" in far.of("a") & middle.of("a"), "the last one there", 30.0)
            await eventually_async(lambda: topics <= far.of("b"), "all of b there", 30.0)
            # Told of at the border of c: what a lets out and c not in. What a keeps never comes so far.
            assert refused(line["c"]) - before == 1
            assert refused_on_leave(line["a"]) - before_leaving == 1
            for task in listening:
                task.cancel()
            return far.of("a") & topics, middle.of("a") & topics, far.of("b") & topics

    assert asyncio.run(story()) == ({"open/x"}, topics, topics)


def test_both_borders_are_in_status_log_and_metrics_and_the_publisher_is_told(line: RealOverlay) -> None:
    publisher = let_in(int(line["a"].mqtt.rpartition(":")[2]), "publisher")
    listener = let_in(int(line["c"].mqtt.rpartition(":")[2]), "listener")
    listener.subscribe("#")
    eventually(lambda: "may not leave" in told_of(publisher, "closed/y"), "the need of c is known at a", 30.0)
    assert told_of(publisher, "closed/y") == "closed/y may not leave for c"
    entered = refused(line["c"])
    eventually(lambda: told_of(publisher, "told/y") == "" and refused(line["c"]) > entered, "refused at c", 30.0)
    for name, reason, in_log in (
        ("a", "border (leave)", 'reason="border (leave)" told="closed/y may not leave for c" client=publisher'),
        ("c", "border (enter)", "messages from a, for example on told/"),
    ):
        shown = CliRunner().invoke(app, ["status", line[name].admin]).output
        assert f"{name} refused: {reason} " in shown
        line.wait_until(partial(_is_logged, line[name], in_log), f"{in_log!r} in the log", 30.0)
    assert re.search(r'^overlane_refused_total\{reason="border \(leave\)"\} [1-9]', metrics(line["a"]), re.MULTILINE)
    assert re.search(r"^overlane_overlay_refused_at_border_total [1-9]", metrics(line["c"]), re.MULTILINE)
    publisher.close()
    listener.close()


def _is_logged(member: Member, text: str) -> bool:
    return text in member.log.read_text()


def metrics(member: Member) -> str:
    with urlopen(f"http://{member.admin}/metrics", timeout=30.0) as answer:
        text: str = answer.read().decode()
    return text


def told_of(publisher: Caller, topic: str) -> str:
    """The reason in the acknowledgement of a message; empty if there is none."""
    publisher.send(mqtt5.PublishPacket(topic, b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1))
    return publisher.read(mqtt5.PubAckPacket).reason_str or ""


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
