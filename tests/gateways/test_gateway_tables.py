"""[[gateways]] in the network file: what is wrong is told with its line."""

import pytest

from overlane.errors import ConfigError
from overlane.network import parse_network

ONE = '[[gateways]]\nname = "g"\nbroker = "a"\nto = "mqtt://f"\n'
RULE = '[[gateways.topics]]\noverlay = "x/#"\n'


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("[[gateways]]\n[[gateways]]", "gateways[1].name: found nothing"),
        (ONE, "gateways[0].topics: found nothing, allowed is at least one table [[gateways.topics]]"),
        (ONE + RULE + ONE + RULE, 'gateways[1].name: found "g", allowed is a name of its own'),
        (ONE.replace("mqtt://", "ftp://") + RULE, 'gateways[0].to: found "ftp://f", allowed is an address'),
        (
            ONE + RULE + 'local = "+/x"',
            'gateways[0].topics[0].local: found "+/x", allowed is a filter with the wildcards',
        ),
        (ONE + RULE + '[[gateways.topics]]\noverlay = "x/1"', 'found "x/1", and line 6 has "x/#", allowed is filters'),
        (ONE + 'stream = "s"\n' + RULE, 'gateways[0].stream: found "s", allowed is nothing where to is no NATS server'),
        (ONE + 'version = "3.1.1"\nqos = 2\n' + RULE, "gateways[0].qos: found 2, allowed is 0 or 1"),
        (
            ONE + RULE + ONE.replace('"g"', '"h"') + 'version = "3.1.1"\n' + RULE,
            'gateways[1].version: found "3.1.1", and gateway g is connected to the same broker',
        ),
        (ONE + 'password_file = "p"\n' + RULE, "gateways[0].user: found nothing, allowed is a value"),
    ],
)
def test_a_wrong_gateway_is_told_where_what_and_what_instead(tables: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_network(f"[brokers.a]\n{tables}")
    assert message in str(refused.value)
