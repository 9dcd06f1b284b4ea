"""State of an Overlane broker during a scenario: `python _wan_watch.py FILE`, at its site.

Four times per second its routes, its links, and the kernel's state of their connections are written to a file, one line
of JSON each time, with the time of the shared clock. Ended by its owner.
"""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from _wan_peers import ADMIN, LINKS

EVERY_S = 0.25


def main() -> None:
    with Path(sys.argv[1]).open("w") as file:
        while True:
            seen = {"at_ns": time.monotonic_ns(), **{what: _asked(what) for what in ("links", "routes")}}
            seen["sockets"] = subprocess.run(
                ["ss", "-tinH", f"( sport = :{LINKS} or dport = :{LINKS} )"],
                capture_output=True,
                text=True,
                check=False,
            ).stdout
            file.write(json.dumps(seen) + "\n")
            file.flush()
            time.sleep(EVERY_S)


def _asked(what: str) -> object:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN}/{what}", timeout=1) as answer:
            found: object = json.load(answer)
            return found
    except OSError as error:
        return str(error)


if __name__ == "__main__":
    main()
