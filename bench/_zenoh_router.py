"""A Zenoh router: `python bench/_zenoh_router.py PORT`. The Python package has the router's code, but no zenohd."""

import signal
import sys

import zenoh

from _zenoh_load import configuration


def main() -> None:
    with zenoh.open(configuration("router", listen=int(sys.argv[1]))):
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
