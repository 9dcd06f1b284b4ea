"""`python -m overlane` is the command `overlane`."""

from overlane.cli.main import run

run()
