"""Whole brokers under faults, whose topics have other names in the overlay: what must hold on every seed still does.

Every broker that has clients is of a domain with names of its own: all that clients say and hear is translated. In two
tiers routing brokers have the names of the overlay.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

from overlane.core.config import BrokerConfig
from overlane.core.qos import QosTable
from overlane.pubsub.cluster.cluster import overlay_table
from overlane.pubsub.cluster.renaming import RenamedUplink
from overlane.pubsub.state import Settings
from overlane.sim.soak.running import SeedVerdict
from overlane.sim.whole import running, tiers
from overlane.sim.whole.broker import WholeBroker
from overlane.topic_names import NameRule
from overlane.turn.reconfigure import Reconfigure

LOCAL = NameRule("#", "plant/#")
SEEDS = range(700, 708)

Made = Callable[..., None]


def _overlay_names(qos: QosTable) -> QosTable:
    """The table of a network whose patterns are for local names, for the names of the overlay."""
    return QosTable(
        {one if one.startswith("$") else f"plant/{one}": found for one, found in qos._classes.items()}, qos._default
    )


def _named(settings: Settings, is_routing: bool) -> Settings:
    assert settings.policies is None
    return replace(settings, qos=_overlay_names(settings.qos), names=() if is_routing else (LOCAL,))


@pytest.fixture
def names() -> Iterator[list[RenamedUplink]]:
    """All uplinks that translate."""
    made: list[RenamedUplink] = []
    begin, reconfigure, uplink = WholeBroker.__init__, WholeBroker.reconfigure, RenamedUplink.__init__

    def with_names(self: WholeBroker, config: BrokerConfig, settings: Settings, *rest: object) -> None:
        named = _named(settings, config.role != "edge" and config.role != "plain")
        begin(self, replace(config, qos=overlay_table(named.qos)), named, *rest)  # type: ignore[arg-type]

    def reconfigured(self: WholeBroker, event: Reconfigure) -> None:
        reconfigure(self, replace(event, settings=_named(event.settings, not self._settings.names)))

    def noted(self: RenamedUplink, *args: object) -> None:
        made.append(self)
        uplink(self, *args)  # type: ignore[arg-type]

    with (
        patch.object(WholeBroker, "__init__", with_names),
        patch.object(WholeBroker, "reconfigure", reconfigured),
        patch.object(RenamedUplink, "__init__", noted),
    ):
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("run_seed", [running.run_seed, tiers.run_seed])
def test_the_invariants_hold_on_every_seed(run_seed: Callable[[int], SeedVerdict], names: list[RenamedUplink]) -> None:
    verdicts = [run_seed(seed) for seed in SEEDS]
    broken = [verdict.told() for verdict in verdicts if verdict.broken]
    assert not broken, "\n".join(broken)
    assert names
    assert sum(verdict.deliveries for verdict in verdicts) > 100 * len(verdicts)
