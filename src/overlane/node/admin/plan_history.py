"""Plan history: the plan that a broker follows, and earlier ones; both survive a restart.

    plans/000007.json   plan 7 as it was received
    plans/following     the version that is followed; 0: none, only the network file counts

A file is written completely before it gets its name; an unreadable plan is renamed and reported. A plan is followed
only after it is on disk. Without a data directory it is kept in memory.
"""

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from overlane.errors import OverlaneError
from overlane.network.plan import BadPlan, Plan, read_plan
from overlane.node.store.data_directory import sync_directory

KEPT_MAX = 20

FOLLOWING = "following"

log = logging.getLogger("overlane.plans")


class StalePlan(OverlaneError):
    """The plan is older than what the broker has, or is no longer kept."""

    error_code = "OVL-108"


class PlanHistory:
    def __init__(self, directory: Path | None) -> None:
        self._directory = directory / "plans" if directory is not None else None
        self.kept: dict[int, Plan] = {}
        self.version = 0
        """Of the plan that is followed."""
        if self._directory is not None and self._directory.is_dir():
            self._read(self._directory)

    @property
    def followed(self) -> Plan | None:
        return self.kept.get(self.version)

    @property
    def newest(self) -> int:
        return max(self.kept, default=0)

    def check(self, plan: Plan) -> None:
        """Whether the plan would be taken; BadPlan or StalePlan if not."""
        if plan.version < 1:
            raise BadPlan("version", str(plan.version), "1 or more")
        if plan.version <= self.newest and self.kept.get(plan.version) != plan:
            raise StalePlan(f"version {plan.version} is not newer than version {self.newest}")
        newest = self.kept.get(self.newest)
        if newest is not None and plan.made_ns < newest.made_ns:
            raise StalePlan(f"it was made from older history than version {newest.version}")

    def take(self, plan: Plan) -> None:
        """Follow a plan from now on; OSError if it cannot be kept, and then nothing has changed."""
        self.check(plan)
        self._write(f"{plan.version:06}.json", msgspec.json.encode(plan))
        self._write(FOLLOWING, b"%d\n" % plan.version)
        self.kept[plan.version] = plan
        self.version = plan.version
        while len(self.kept) > KEPT_MAX:
            self._forget(min(self.kept))

    def roll_back(self, version: int | None) -> None:
        """Follow an earlier plan again, the one before by default; 0: none. OSError as above."""
        if version is None:
            version = max((one for one in self.kept if one < self.version), default=0)
        if version != 0 and version not in self.kept:
            known = ", ".join(map(str, sorted(self.kept))) or "none"
            raise StalePlan(f"version {version} is not kept; kept are: {known}")
        self._write(FOLLOWING, b"%d\n" % version)
        self.version = version

    # Files

    def _read(self, directory: Path) -> None:
        for file in sorted(directory.glob("*.json")):
            try:
                plan = read_plan(file.read_bytes())
            except (BadPlan, OSError) as error:
                log.error("ignored an invalid plan: %s: %s", file.name, error)
                with contextlib.suppress(OSError):
                    file.rename(file.with_suffix(".damaged"))
                continue
            self.kept[plan.version] = plan
        try:
            version = int((directory / FOLLOWING).read_text())
        except (OSError, ValueError):
            version = 0
        self.version = version if version in self.kept else 0

    def _write(self, name: str, content: bytes) -> None:
        if self._directory is None:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        new = self._directory / f".{name}.new"
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._directory / name)
        sync_directory(self._directory)

    def _forget(self, version: int) -> None:
        del self.kept[version]
        if self._directory is not None:
            (self._directory / f"{version:06}.json").unlink(missing_ok=True)
