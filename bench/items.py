"""Items with a primary and a mirror: risks by plan and by simulation, and lost brokers under load.

    python bench/items.py                            # 20 brokers, 200 items: every state of the case base, simulated
    python bench/items.py --quick
    python bench/items.py --only failures --repeat 3 # four real brokers: the primary is lost, then the mirror
    python bench/items.py --only balance             # four real brokers: round robin and the plan, at the same rates

`risks` draws rates of items from a normal distribution with known covariance (factors that many items share) and
counts how often the rate of a broker exceeds its capacity, in every state of the case base, beside the figure that the
solver has predicted for it. The placement of a state is that which simulated agents follow after they have lost these
brokers. For the normal state it shows round robin with mirrors too.

`balance` publishes at such rates to four brokers that can carry so much and no more (`_item_balance.py`; needs root).

`failures` publishes 100 messages a second to a critical item and to another one, with clients that follow the
directory, takes their primary away, and then the mirror of that time. It reports how many messages were lost, how many
came later than 50 ms, and the longest time without a message. `none` is the same without a failure: what the load of
the machine causes by itself.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from _item_rates import Carried, differences, drawn_plan, drawn_rates, placed_in_turn
from overlane.items.plans import failure_states, solve
from overlane.sim.items.states import policies_followed

DEADLINE_S = 0.05
RATE_HZ = 100
CONFIG = """
[security]
overlay_open = true
[placement]
capacity = 5000
[items.tolls]
topics = ["tolls/#"]
critical = true
[items.north]
topics = ["north/#"]
[items.south]
topics = ["south/#"]
[items.signs]
topics = ["signs/#"]
"""


# Risks


def show_risks(brokers: int, items: int, samples: int, seed: int) -> None:
    began = time.process_time()
    plan = drawn_plan(brokers, items, seed)
    rates = drawn_rates(plan, samples, seed + 1)
    print(f"{brokers} brokers, {items} items, {samples} samples, seed {seed}")
    for name, places in (("plan", plan.places), ("round robin", placed_in_turn(plan))):
        carried = Carried(plan, places)
        predicted, counted = max(carried.predicted().values()), max(carried.counted(rates).values())
        print(f"  normal state, {name}: greatest Pr(V > C) {predicted:.4f} predicted, {counted:.4f} simulated")
    states = [frozenset[str](), *failure_states(plan)]
    solved = [solve(plan, missing) for missing in states]
    for state in solved[1:]:
        plan = plan.with_state(state)
    statuses = Counter(state.status for state in solved)
    print(f"{len(states)} states ({', '.join(f'{n} {word}' for word, n in sorted(statuses.items()))})")
    errors, worst, followed = [], 0.0, 0
    for state, policy in zip(solved, policies_followed(plan, states), strict=True):
        if policy is None or dict(policy.places) != state.places:
            continue
        followed += 1
        for deviation, difference in differences(Carried(plan, policy.places), state.risk, rates):
            errors.append(deviation)
            worst = max(worst, difference)
    print(f"  {followed} followed by simulated agents that lost these brokers")
    print(f"  {len(errors)} risks: greatest difference {worst:.4f}; in standard errors of the simulation")
    print(f"  mean {np.mean(errors):.2f}, 99th percentile {np.percentile(errors, 99):.2f}, greatest {max(errors):.2f}")
    print(f"{time.process_time() - began:.0f} s of processor time")


# Failures


class Traffic:
    """A publisher and a subscriber of one topic, both following the directory."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sent: dict[int, float] = {}
        self.came: dict[int, float] = {}
        self.twice = 0

    async def run(self, addresses: list[str], ready: asyncio.Event, until: asyncio.Event) -> None:
        from overlane.client import connect

        name = f"{self.topic.replace(chr(47), chr(45))}-{secrets.token_hex(4)}"  # sessions of earlier runs are kept
        pub = connect(addresses, client_id=f"pub-{name}", session_expiry="1h", directory=True)
        sub = connect(addresses, client_id=f"sub-{name}", session_expiry="1h", directory=True)
        async with pub, sub, sub.subscribe(self.topic, qos=1) as messages:
            reading = asyncio.create_task(self._read(messages))
            under_way = set()
            await asyncio.sleep(1)
            ready.set()
            number = 0
            while not until.is_set():
                number += 1
                self.sent[number] = time.monotonic()
                task = asyncio.create_task(pub.publish(self.topic, str(number), qos=1))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(1 / RATE_HZ)
            if under_way:
                await asyncio.wait(under_way, timeout=20)
            for _ in range(100):
                if len(self.came) == len(self.sent):
                    break
                await asyncio.sleep(0.1)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _read(self, messages: object) -> None:
        async for message in messages:  # type: ignore[attr-defined]
            number, now = int(message.body), time.monotonic()
            self.twice += number in self.came
            self.came.setdefault(number, now)

    def told(self, since: float) -> str:
        """Of what was sent from then on."""
        numbers = [number for number, at in self.sent.items() if at >= since]
        lost = [number for number in numbers if number not in self.came]
        ages = sorted(self.came[number] - self.sent[number] for number in numbers if number in self.came)
        late = sum(age > DEADLINE_S for age in ages)
        times = sorted(at for at in self.came.values() if at >= since)
        gap = max((b - a for a, b in zip([since, *times], times, strict=False)), default=0.0)
        p99 = ages[int(0.99 * (len(ages) - 1))] if ages else 0.0
        return (
            f"{self.topic:8} {len(numbers):5} sent, {len(lost)} lost, {self.twice} twice, {late} later than 50 ms, "
            f"p99 {p99 * 1e3:.0f} ms, longest gap {gap * 1e3:.0f} ms"
        )


async def show_failures(repeat: int, faults: list[str]) -> None:
    from _tiers import Ensemble, Tiers

    with tempfile.TemporaryDirectory() as folder:
        ensemble = Ensemble(Path(folder) / "zookeeper", servers=1)
        ensemble.start()
        tiers = Tiers(Path(folder), ensemble, "/items-bench")
        try:
            await tiers.push(Path(folder), CONFIG)
            for number in range(1, 5):
                tiers.add(f"west-{number}", "edge", "west")
            await asyncio.to_thread(_until_normal, tiers)
            for fault in faults:
                for _ in range(repeat):
                    await _one_failure(tiers, fault)
        finally:
            tiers.end()
            ensemble.stop()


def _until_normal(tiers: "object") -> None:
    import json
    from urllib.request import urlopen

    until = time.monotonic() + 120
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            views = []
            for broker in tiers.brokers.values():  # type: ignore[attr-defined]
                with urlopen(f"http://127.0.0.1:{broker.ports[2]}/directory", timeout=5) as answer:
                    views.append(json.load(answer))
            primaries = [{item["primary"] for item in view["items"]} for view in views]
            if all(view["state"] == "normal" for view in views) and all(len(one) == 4 for one in primaries):
                return
        time.sleep(0.2)
    raise RuntimeError("the domain has not come to its normal state")


async def _one_failure(tiers: "object", fault: str) -> None:
    import json
    from urllib.request import urlopen

    brokers = tiers.brokers  # type: ignore[attr-defined]
    addresses = [one.mqtt for one in brokers.values()]
    with urlopen(f"http://127.0.0.1:{brokers['west-1'].ports[2]}/directory", timeout=5) as answer:
        places = {one["item"]: (one["primary"], one["mirror"]) for one in json.load(answer)["items"]}
    for item in ("tolls", "north"):
        traffic, ready, until = Traffic(f"{item}/1"), asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(traffic.run(addresses, ready, until))
        await ready.wait()
        await asyncio.sleep(3)
        since = time.monotonic()
        lost = []
        for victim in [] if fault == "none" else places[item][: 2 if "both" in fault else 1]:
            lost.append(brokers[victim])
            brokers[victim].signal(signal.SIGSTOP if "stop" in fault else signal.SIGKILL)
            await asyncio.sleep(4)
        if fault == "none":
            await asyncio.sleep(4)
        until.set()
        await running
        kind = "critical" if item == "tolls" else "other"
        print(f"{fault:10} {kind:8} {traffic.told(since)}; load {os.getloadavg()[0]:.0f}", flush=True)
        for broker in lost:
            if "stop" in fault:
                broker.signal(signal.SIGCONT)
            else:
                broker.process.wait()
                tiers.start(broker)  # type: ignore[attr-defined]
        await asyncio.to_thread(_until_normal, tiers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("risks", "failures", "balance"), default="risks")
    parser.add_argument("--quick", action="store_true", help="risks: 4 brokers and 24 items")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--faults", nargs="*", default=["none", "kill", "stop", "kill both"])
    parser.add_argument("--seconds", type=int, default=100, help="balance: with each placement")
    parser.add_argument("--margin", type=float, default=1.45, help="balance: capacity compared with the mean rates")
    given = parser.parse_args()
    if given.only == "risks":
        show_risks(*((4, 24) if given.quick else (20, 200)), given.samples, given.seed)
    elif given.only == "balance":
        from _item_balance import show_balance

        with tempfile.TemporaryDirectory() as folder:
            show_balance(Path(folder), given.seconds, given.seed, given.margin)
    else:
        asyncio.run(show_failures(given.repeat, given.faults))


if __name__ == "__main__":
    main()
