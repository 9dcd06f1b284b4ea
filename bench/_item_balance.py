"""Round robin and the plan on four real brokers, whose access paths carry so many messages a second and no more.

Each broker is at a site of its own in an emulated wide area; publishers and subscribers are at another one. The path
between them carries `CAPACITY` messages a second in each direction, so that a broker with more to do than that delivers
late: the capacity does not depend on how busy this machine is. Rates of items are drawn every second from a normal
distribution with known covariance, and both placements get the same ones. Agents and clients follow the placement as it
is: their detectors, which would relieve an overloaded broker, are given bounds that are never reached.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec

import overlane.client
from _item_rates import Carried, Rates, drawn_rates, placed_in_turn, station_plan
from overlane.client.items import ItemClient
from overlane.coordination.ensemble.java import java_command, server_jars
from overlane.coordination.ensemble.layout import configuration, open_ensemble
from overlane.coordination.ensemble.running import MAIN, OPTIONS
from overlane.core.units import MS, SECOND
from overlane.items.plans import DomainPlan
from overlane.items.policy import Places
from overlane.local_ports import HOST
from overlane.network.plan import CapacityForecast, DomainForecast, ItemForecast, Plan
from overlane.testbed.wide_area import Conditions, WideArea

BROKERS = tuple(f"west-{number}" for number in range(1, 5))
STATIONS = 6
CAPACITY = 100.0
PAYLOAD_BYTES = 1000
DEADLINE_S = 0.1
TRIAL_MESSAGES = 200
WITHIN_S = 180.0
SETTLED_S = 8.0
"""Subscriptions at the home session overlap with those at the brokers of items for a while."""
NEAR = Conditions(latency_ns=1 * MS)
PORTS = ["--mqtt", "0.0.0.0:1883", "--overlay", "0.0.0.0:7001", "--admin", "127.0.0.1:8001"]
CONFIG = """
[security]
anonymous = true
overlay_secret = "{secret}"
[placement]
capacity = 1000000
"""


class Site:
    """The brokers, ZooKeeper and the place of the clients."""

    def __init__(self, area: WideArea, folder: Path, plan: DomainPlan) -> None:
        self.area = area
        self._folder = folder
        self._plan = plan
        self._applied = 0

    def start(self) -> None:
        secret, file = self._folder / "secret", self._folder / "pushed.toml"
        secret.write_text("a-secret-of-sixteen-bytes-or-more\n")
        secret.chmod(0o600)
        items = [
            f'[items.{item.name}]\ntopics = ["{item.name}/#"]\ncritical = {str(item.critical).lower()}\n'
            for item in self._plan.items
        ]
        file.write_text(CONFIG.format(secret=secret) + "".join(items))
        zookeeper = self._start_zookeeper()
        words = [sys.executable, "-m", "overlane", "config", "push", str(file), "--zookeeper", zookeeper]
        until(lambda: self.area.start("zoo", words, log=self._folder / "push.log").wait() == 0, "the file is pushed")
        for name in BROKERS:
            role = ["--name", name, "--role", "edge", "--domain", "west", "--zookeeper", zookeeper]
            data = ["--data", str(self._folder / name), "--no-sync"]
            command = [sys.executable, "-m", "overlane", "broker", *role, *PORTS, *data]
            self.area.start(name, command, log=self._folder / f"{name}.log")
        until(self._are_together, "all brokers are there")

    def _start_zookeeper(self) -> str:
        home = self._folder / "zookeeper"
        ensemble = open_ensemble(home, 1)
        config = home / "zoo.cfg"
        config.write_text(configuration(home, ensemble, 1).replace(HOST, "0.0.0.0"))
        path = ":".join(map(str, server_jars()))
        command = [java_command(), *OPTIONS, "-cp", path, MAIN, str(config)]
        self.area.start("zoo", command, log=self._folder / "zoo.log")
        return f"{self.area.address('zoo')}:{ensemble.servers[0].client}"

    def ask(self, broker: str, path: str, body: bytes | None = None) -> Any:
        request = Request(f"http://127.0.0.1:8001{path}", body, method="GET" if body is None else "PUT")
        with self.area.inside(broker), urlopen(request, timeout=10) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def directory(self, broker: str) -> Any:
        with contextlib.suppress(OSError):
            return self.ask(broker, "/directory")
        return None

    def _are_together(self) -> bool:
        views = [self.directory(name) for name in BROKERS]
        return all(view is not None and view["state"] == "normal" for view in views) and all(
            {item["primary"] for item in view["items"]} == set(BROKERS) for view in views
        )

    def apply(self, places: Places) -> None:
        """As `overlane plan apply` does, and wait until every agent has it."""
        plan, self._applied = self._plan, self._applied + 1
        forecast = DomainForecast(
            items=tuple(ItemForecast(item.name, item.mean) for item in plan.items),
            covariance=plan.covariance,
            brokers=tuple(CapacityForecast(broker.name, broker.capacity) for broker in plan.brokers),
            primary={item: place.primary for item, place in places.items()},
            mirror={item: place.mirror for item, place in places.items()},
            risk_max=1.0,
        )
        made = Plan(version=self._applied, made_ns=time.time_ns(), source="bench/items.py", domains={"west": forecast})
        for broker in BROKERS:
            self.ask(broker, "/plan", msgspec.json.encode(made))
        wanted = {item: (place.primary, place.mirror) for item, place in places.items()}
        until(lambda: all(_placed(self.directory(name)) == wanted for name in BROKERS), "agents follow the placement")

    def addresses(self) -> list[str]:
        return [f"{self.area.address(name)}:1883" for name in BROKERS]

    def limit(self, rate_bps: int) -> None:
        for name in BROKERS:
            self.area.change("clients", name, rate_bps=rate_bps)

    def no_limit(self) -> None:
        for name in BROKERS:
            self.area.restore("clients", name)

    def bytes_between(self, broker: str) -> int:
        """The larger of the two directions."""
        carried = self.area.carried()
        return max(carried["clients", broker].bytes, carried[broker, "clients"].bytes)


def until(is_so: Any, what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not is_so():
        if time.monotonic() > end:
            raise RuntimeError(f"it has not come to this: {what}")
        time.sleep(0.2)


def _placed(view: Any) -> dict[str, tuple[str, str]]:
    return {} if view is None else {item["item"]: (item["primary"], item["mirror"]) for item in view["items"]}


@dataclass
class Outcome:
    published: list[Counter[str]] = field(default_factory=list)
    """Of each second, messages by the broker that they were published at."""
    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    """By second and number, when."""
    home: dict[tuple[int, int], str] = field(default_factory=dict)
    """At which broker the item of this message is."""
    arrived: dict[tuple[int, int], float] = field(default_factory=dict)

    def observed(self, broker: str, capacity: float) -> tuple[float, int]:
        """How often the rate was above the capacity, and the highest rate."""
        counts = [second[broker] for second in self.published]
        return sum(count > capacity for count in counts) / len(counts), max(counts)

    def in_time(self, broker: str | None = None, capacity: float | None = None) -> float:
        """Of the messages of one broker, or all; with `capacity`, of seconds in which some broker was above it."""
        keys = [key for key in self.sent if broker in (None, self.home[key])]
        if capacity is not None:
            peaks = {number for number, second in enumerate(self.published) if max(second.values()) > capacity}
            keys = [key for key in keys if key[0] in peaks]
        good = sum(self.arrived.get(key, float("inf")) - self.sent[key] <= DEADLINE_S for key in keys)
        return good / len(keys) if keys else 1.0


def _follower(site: Site, name: str) -> ItemClient:
    made = overlane.client.connect(site.addresses(), client_id=name, directory=True)
    assert isinstance(made, ItemClient)
    made._sessions.switching.silence = 600 * SECOND  # the placement is compared, not the way out of it
    return made


async def _follow(site: Site, plan: DomainPlan, rates: Rates, run: str) -> Outcome:
    """Publish at these rates, one second after the other."""
    outcome = Outcome()
    topics = [f"{item.name}/1" for item in plan.items]
    filler = bytes(PAYLOAD_BYTES)
    async with (
        _follower(site, f"pub-{run}") as pub,
        _follower(site, f"sub-{run}") as sub,
        sub.subscribe(*topics, qos=0) as messages,
    ):
        reading = asyncio.create_task(_read(messages, outcome))
        for topic in topics:  # sessions are made on first use
            await pub.publish(topic, "", qos=0)
        while not set(BROKERS) <= set(pub.online_brokers) & set(sub.online_brokers):
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLED_S)
        began = time.monotonic() + 0.5
        for second, row in enumerate(rates):
            counts: Counter[str] = Counter()
            outcome.published.append(counts)
            for number, (at, index) in enumerate(_moments(row)):
                delay = began + second + at - time.monotonic()
                if delay > 0:
                    await asyncio.sleep(delay)
                where, key = pub.brokers_of(topics[index]), (second, number)
                counts.update(where)
                outcome.home[key], outcome.sent[key] = where[0], time.monotonic()
                await pub.publish(topics[index], f"{second} {number} ".encode() + filler, qos=0)
        end = time.monotonic() + 20
        while len(outcome.arrived) < len(outcome.sent) and time.monotonic() < end:
            await asyncio.sleep(0.1)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    return outcome


def _moments(row: Rates) -> list[tuple[float, int]]:
    """When within its second each message of which item is published: evenly, items one after the other."""
    found = []
    for index, rate in enumerate(row.tolist()):
        count = max(0, round(rate))
        found += [((number + index / len(row)) / count, index) for number in range(count)]
    return sorted(found)


async def _read(messages: Any, outcome: Outcome) -> None:
    async for message in messages:
        if message.body:
            second, number = message.body.split(b" ", 2)[:2]
            outcome.arrived.setdefault((int(second), int(number)), time.monotonic())


def _message_bytes(site: Site, plan: DomainPlan, places: Places) -> float:
    """What a message takes on the path of its broker, by trying one item that has no copy."""
    index = next(at for at, item in enumerate(plan.items) if not item.critical)
    broker = places[plan.items[index].name].primary
    rates = drawn_rates(plan, 2, 0) * 0
    rates[:, index] = TRIAL_MESSAGES / len(rates)
    before = site.bytes_between(broker)
    with site.area.inside("clients"):
        asyncio.run(_follow(site, plan, rates, "trial"))
    return (site.bytes_between(broker) - before) / TRIAL_MESSAGES


def show_balance(folder: Path, seconds: int, seed: int, margin: float) -> None:
    plan = station_plan(len(BROKERS), STATIONS, seed, margin, CAPACITY)
    rates = drawn_rates(plan, seconds, seed + 1)
    paths = {(place, name): NEAR for place in ("clients", "zoo") for name in BROKERS}
    paths |= {(one, other): NEAR for one in BROKERS for other in BROKERS if one < other}
    placements = {"round robin": placed_in_turn(plan), "plan": plan.places}
    with WideArea(["zoo", "clients", *BROKERS], paths, is_urgent=False) as area:
        site = Site(area, folder, plan)
        site.start()
        site.apply(placements["plan"])
        size = _message_bytes(site, plan, plan.places)
        critical = sum(item.critical for item in plan.items)
        print(
            f"{len(plan.items)} items, {critical} of them critical, seed {seed}; {len(BROKERS)} brokers of "
            f"{CAPACITY:.0f} messages/s of {size:.0f} bytes; {seconds} s each; "
            f"in time: within {DEADLINE_S * 1e3:.0f} ms"
        )
        print(f"{'':12} {'broker':8} {'Pr(V > C)':>10} {'observed':>9} {'highest V':>10} {'in time':>8}")
        for name, places in placements.items():
            site.apply(places)
            site.limit(int(CAPACITY * size * 8))
            with area.inside("clients"):
                outcome = asyncio.run(_follow(site, plan, rates, name.replace(" ", "-")))
            site.no_limit()
            _show(name, Carried(plan, places).predicted(), outcome)


def _show(name: str, predicted: dict[str, float], outcome: Outcome) -> None:
    for broker in BROKERS:
        observed, highest = outcome.observed(broker, CAPACITY)
        figures = f"{predicted[broker]:10.4f} {observed:9.3f} {highest:10} {outcome.in_time(broker):8.3f}"
        print(f"{name:12} {broker:8} {figures}")
    lost = len(outcome.sent.keys() - outcome.arrived.keys())
    peaks = sum(max(second.values()) > CAPACITY for second in outcome.published)
    print(
        f"{name:12} {len(outcome.sent)} messages, {lost} lost, {outcome.in_time():.3f} in time; {peaks} seconds with a "
        f"broker above its capacity, {outcome.in_time(capacity=CAPACITY):.3f} in time there",
        flush=True,
    )
