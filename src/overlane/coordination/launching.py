"""Launchers: the commands that bring the number of routing brokers to what the leader wants. Pure.

command      the words of the file, and the number
systemd      instances of a template unit, `overlane-routing@1` and so on
kubernetes   the scale of a resource
local        no command: `overlane up` starts and ends them itself

A broker that is ended is drained first: it does so itself when it gets SIGTERM.
"""

from collections.abc import Sequence
from typing import Literal


def launch_commands(
    launcher: Literal["local", "command", "systemd", "kubernetes"] | None,
    count: int,
    *,
    count_max: int,
    command: Sequence[str] = (),
    unit: str = "overlane-routing@",
    resource: str = "statefulset/overlane-routing",
    namespace: str = "default",
) -> list[list[str]]:
    """The commands to run one after the other for `count` routing brokers."""
    match launcher:
        case "command":
            return [[*command, str(count)]]
        case "systemd":
            started = [f"{unit}{number}.service" for number in range(1, count + 1)]
            ended = [f"{unit}{number}.service" for number in range(count + 1, count_max + 1)]
            return [["systemctl", "start", *started], *([["systemctl", "stop", *ended]] if ended else [])]
        case "kubernetes":
            return [["kubectl", "scale", resource, f"--replicas={count}", f"--namespace={namespace}"]]
        case "local" | None:
            return []
