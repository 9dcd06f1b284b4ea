"""Rules of mediation at the borders of domains, between running brokers."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from overlane.client import Client, connect
from overlays import RealOverlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

RULES = """
[[mediation]]
name = "quiet"
topic = "press/#"
where = "level < 5"
border = "leave"
domain = "plant"
drop = true

[[mediation]]
name = "hide"
topic = "press/#"
border = "leave"
domain = "plant"
remove_fields = ["operator"]

[[mediation]]
name = "kelvin"
topic = "press/#"
border = "enter"
domain = "office"
set_fields = { kelvin = "level + 273" }
"""
WITHIN_S = 60.0
LAST = {"level": 99, "operator": "x"}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    """a and b are the plant, c the office, d a domain of its own."""
    link = 'latency = "1ms"'
    net = RealOverlay(tmp_path_factory.mktemp("borders"), {"a-b": link, "b-c": link, "c-d": link}, RULES)
    text = net.file.read_text()
    for name, domain in {"a": "plant", "b": "plant", "c": "office"}.items():
        text = text.replace(f"[brokers.{name}]\n", f'[brokers.{name}]\ndomain = "{domain}"\n')
    net.file.write_text(text)
    try:
        net.start()
        yield net
    finally:
        net.end()


class Ear:
    def __init__(self, client: Client, topic_filter: str) -> None:
        self.heard: list[object] = []
        self._messages = client.subscribe(topic_filter, qos=1)

    async def listen(self) -> None:
        async for message in self._messages:
            body = bytes(message.body)
            self.heard.append(json.loads(body) if body.startswith(b"{") else body)

    @property
    def levels(self) -> list[int]:
        """Those below 10."""
        return [one["level"] for one in self.heard if isinstance(one, dict) and one["level"] < 10]


@pytest.mark.parametrize("qos", [0, 1])
def test_each_domain_gets_messages_as_rules_have_made_them(net: RealOverlay, qos: int) -> None:
    async def story() -> None:
        async with (
            connect(net["a"].mqtt) as here,
            connect(net["b"].mqtt) as same,
            connect(net["c"].mqtt) as office,
            connect(net["d"].mqtt) as other,
        ):
            topic = f"press/{qos}"
            ears = [Ear(client, topic) for client in (here, same, office, other)]
            tasks = [asyncio.create_task(ear.listen()) for ear in ears]
            kelvin = {"kelvin": 372}
            made: list[object] = [LAST, LAST, {"level": 99} | kelvin, {"level": 99}]
            ends: list[object] = [{"level": 99, "end": True, **more} for more in ({}, {}, kelvin, {})]

            def all_hear(wanted: list[object]) -> bool:
                return all(one in ear.heard for ear, one in zip(ears, wanted, strict=True))

            async with asyncio.timeout(WITHIN_S):
                while not all_hear(made):
                    await here.publish(topic, json.dumps(LAST), qos=qos)
                    await asyncio.sleep(0.05)
            for level in range(10):
                await here.publish(topic, json.dumps({"level": level}), qos=qos)
            await here.publish(topic, json.dumps({"level": 99, "end": True}), qos=qos)
            await eventually_async(lambda: all_hear(ends), "the last ones", WITHIN_S)
            few = [5, 6, 7, 8, 9]
            assert [ear.levels for ear in ears] == [[*range(10)], [*range(10)], few, few]
            for task in tasks:
                task.cancel()

    asyncio.run(story())


async def retained_at(address: str, topic: str, wanted: object) -> None:
    """A reader that comes late gets this."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            async with connect(address) as late:
                ear = Ear(late, topic)
                listening = asyncio.create_task(ear.listen())
                until = asyncio.get_running_loop().time() + 2
                while not ear.heard and asyncio.get_running_loop().time() < until:
                    await asyncio.sleep(0.02)
                listening.cancel()
                if ear.heard:
                    assert ear.heard == [wanted]
                    return


def test_retained_messages_are_changed_and_those_for_which_a_rule_fails_do_not_cross(net: RealOverlay) -> None:
    async def story() -> None:
        async with connect(net["a"].mqtt) as here:
            letters = Ear(here, "$dead-letter/#")
            listening = asyncio.create_task(letters.listen())
            await here.publish("press/kept", json.dumps(LAST), qos=1, retain=True)
            await retained_at(net["b"].mqtt, "press/kept", LAST)
            await retained_at(net["c"].mqtt, "press/kept", {"level": 99, "kelvin": 372})
            async with connect(net["b"].mqtt) as same, connect(net["c"].mqtt) as office:
                ears = [Ear(client, "press/failing") for client in (same, office)]
                tasks = [asyncio.create_task(ear.listen()) for ear in ears]
                async with asyncio.timeout(WITHIN_S):
                    while b"no JSON" not in letters.heard or not ears[0].heard:
                        await here.publish("press/failing", b"no JSON", qos=1)
                        await asyncio.sleep(0.05)
                while not ears[1].heard:
                    await here.publish("press/failing", json.dumps(LAST), qos=1)
                    await asyncio.sleep(0.05)
                assert b"no JSON" in ears[0].heard
                assert b"no JSON" not in ears[1].heard
                for task in (*tasks, listening):
                    task.cancel()

    asyncio.run(story())
