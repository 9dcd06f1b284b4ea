"""How many examples a property is tried with, and how many seeds: all in `make test`, a fifth in `make check`.

`make check` is run before every commit, and takes the profile QUICK of Hypothesis (`--hypothesis-profile`). LONG looks
for longer, as for parsers: `python -m pytest --hypothesis-profile=long tests/amqp/test_amqp_fuzz.py`.
"""

from hypothesis import HealthCheck, settings

WHOLE, QUICK, LONG = "overlane", "quick", "long"
EXAMPLES = 100
"""Of a property that does not say how many; so many is Hypothesis's own default."""
QUICK_PART = 5
LONG_TIMES = 50


def register_profiles() -> None:
    """Tests are not judged by the clock, and say how to repeat what they found."""
    settings.register_profile(
        WHOLE, max_examples=EXAMPLES, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile(QUICK, settings.get_profile(WHOLE), max_examples=EXAMPLES // QUICK_PART)
    settings.register_profile(LONG, settings.get_profile(WHOLE), max_examples=EXAMPLES * LONG_TIMES)
    settings.load_profile(WHOLE)


def examples(count: int) -> settings:
    """For a property that needs more or fewer than the others: so many in `make test`."""
    return settings(max_examples=max(1, count * settings().max_examples // EXAMPLES))


def seeds(count: int) -> int:
    """For a test that draws worlds by itself: so many seeds in `make test`."""
    return -(-count * settings().max_examples // EXAMPLES)
