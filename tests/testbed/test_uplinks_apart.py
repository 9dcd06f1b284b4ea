"""Links with several paths, between real brokers in a wide area: an uplink is unplugged, an address changes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ground import needs_a_wide_area

from overlane.core.units import MS
from overlane.testbed.wide_area import Conditions, Site, Uplink, WideArea
from waiting import eventually

pytestmark = [needs_a_wide_area, pytest.mark.slow]

WITHIN_S = 60.0

OFFICE_AND_PLANT = """
[brokers.office]
mqtt = "127.0.0.1:1883"
admin = "127.0.0.1:8001"
overlay = "0.0.0.0:7001"
reach = ["{office}:7001"]
[brokers.plant]
mqtt = "127.0.0.1:1883"
admin = "127.0.0.1:8001"
overlay = "0.0.0.0:7001"
reach = {reach}
[[links]]
ends = ["office", "plant"]
latency = "10ms"
[topics."alarms/#"]
deadline = "200ms"
reliability = "reliable"
[security]
{security}
"""

ASK = (
    "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen('http://127.0.0.1:8001' + sys.argv[1]).read())"
)


class Brokers:
    def __init__(self, area: WideArea, directory: Path) -> None:
        self.area = area
        self._directory = directory

    def start(self, file: Path) -> None:
        for name in ("office", "plant"):
            words = [sys.executable, "-m", "overlane", "broker", str(file), "--name", name]
            log = self._directory / f"{name}.log"
            self.area.start(name, [*words, "--data", str(self._directory / name)], log=log)

    def ask(self, name: str, path: str) -> Any:
        process = self.area.start(name, [sys.executable, "-c", ASK, path], stdout=subprocess.PIPE)
        answer, _ = process.communicate(timeout=30)
        return json.loads(answer) if process.returncode == 0 else None

    def link(self, name: str) -> dict[str, Any]:
        """The only one of this broker."""
        answer = self.ask(name, "/links")
        return answer["items"][0] if answer else {"state": "down", "paths": []}

    def paths(self, name: str) -> dict[str, str]:
        """The state of each path, by the address at the plant."""
        end = "local" if name == "plant" else "remote"
        return {path[end]: path["state"] for path in self.link(name)["paths"]}

    def until(self, holds: Callable[[], object], what: str) -> None:
        eventually(holds, what, WITHIN_S, self.logs)

    def logs(self) -> str:
        shown = [
            f"{one}: {self.link(one)}\n{(self._directory / f'{one}.log').read_text()}" for one in ("office", "plant")
        ]
        return "\n".join(shown)


@contextmanager
def running(directory: Path, *, dials: str, secret: bool = False) -> Iterator[Brokers]:
    """The plant has a fibre and a radio uplink; `dials` says which of the two brokers opens the connection."""
    radio = Conditions(latency_ns=5 * MS)
    plant = Site("plant", (Uplink("fibre"), Uplink("radio", radio, radio)))
    with WideArea(["office", plant], {("office", "plant"): Conditions(latency_ns=10 * MS)}, is_urgent=False) as area:
        file, token = directory / "network.toml", directory / "secret"
        token.write_text("a secret of sixteen bytes and more\n")
        token.chmod(0o600)
        reach = [f"{address}:7001" for address in area.addresses("plant")] if dials == "office" else []
        file.write_text(
            OFFICE_AND_PLANT.format(
                office=area.address("office"),
                reach=json.dumps(reach),
                security=f'overlay_secret = "{token}"' if secret else "overlay_open = true",
            )
        )
        brokers = Brokers(area, directory)
        brokers.start(file)
        yield brokers


def test_a_link_uses_the_better_of_two_uplinks_and_the_other_one_when_it_is_unplugged(tmp_path: Path) -> None:
    with running(tmp_path, dials="office") as brokers:
        fibre, radio = brokers.area.addresses("plant")
        for name in ("office", "plant"):
            brokers.until(lambda name=name: brokers.paths(name) == {fibre: "in_use", radio: "standby"}, "two paths")
        opened = {name: brokers.ask(name, "/broker") for name in ("office", "plant")}
        brokers.area.unplug("plant", "fibre")
        for name in ("office", "plant"):
            brokers.until(lambda name=name: brokers.paths(name) == {fibre: "gone", radio: "in_use"}, "the other one")
        brokers.area.plug_in("plant", "fibre")
        for name in ("office", "plant"):
            brokers.until(lambda name=name: brokers.paths(name) == {fibre: "in_use", radio: "standby"}, "back")
        print(opened, brokers.logs())
