"""`python -m overlane` is the command `overlane`."""

from overlane.cli.start import run

run()
