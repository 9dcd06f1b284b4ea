"""[telemetry] of the network file: what brokers record of themselves."""

import pytest

from overlane.errors import ConfigError
from overlane.network import format_network, parse_network
from overlane.network.schema import Telemetry
from overlane.quantities import SECOND

BROKER = "[brokers.a]\n"
EVERYTHING = """
[telemetry]
enabled = false
file = "1MiB"
file_age = "30s"
disk = "100MiB"
deliveries_per_second = 0
"""


def test_a_file_says_how_much_is_recorded_and_how_much_room_that_takes() -> None:
    expected = Telemetry(
        enabled=False, file_bytes=2**20, file_age_ns=30 * SECOND, disk_bytes=100 * 2**20, deliveries_per_second=0
    )
    assert parse_network(BROKER + EVERYTHING).telemetry == expected


def test_a_file_that_says_nothing_records_where_there_is_a_directory_for_it() -> None:
    assert parse_network(BROKER).telemetry == Telemetry(
        enabled=None, file_bytes=32 * 2**20, file_age_ns=300 * SECOND, disk_bytes=2**30, deliveries_per_second=100
    )


def test_what_is_written_is_read_as_the_same() -> None:
    network = parse_network(BROKER + EVERYTHING)
    assert parse_network(format_network(network)) == network


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("enabled = 1", "enabled: found 1, allowed is true or false"),
        ('file = "1KiB"', 'file: found "1KiB", allowed is a size from 64KiB to 1GiB, as in "32MiB"'),
        ('file_age = "2d"', 'file_age: found "2d", allowed is a duration from 100ms to 1d, as in "5m"'),
        ("disk = 1024", 'disk: found 1024, allowed is a size of at least 1MiB, as in "1GiB"'),
        (
            "deliveries_per_second = -1",
            "deliveries_per_second: found -1, allowed is a whole number from 0 to 10000",
        ),
        (
            'files = "1MiB"',
            "files: found an unknown field, allowed is deliveries_per_second, disk, enabled, file, file_age; did you"
            " mean file?",
        ),
    ],
)
def test_a_wrong_value_is_told_with_its_line_and_field(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(f"{BROKER}[telemetry]\n{line}\n", "net.toml")
    assert str(refused.value) == f"net.toml:3: telemetry.{message}"
