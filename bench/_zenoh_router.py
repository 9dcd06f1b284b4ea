"""A Zenoh router: `python bench/_zenoh_router.py PORT [PORT OF ANOTHER ...]`.

The Python package has the router's code, but no zenohd.
"""

import signal
import sys

import zenoh

from _zenoh_load import configuration


def main() -> None:
    own, *others = map(int, sys.argv[1:])
    with zenoh.open(configuration("router", listen=own, connect=others)):
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
