"""For all tests: randomised ones are not judged by the clock, and say how to repeat what they found."""

from hypothesis import HealthCheck, settings

settings.register_profile("overlane", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("overlane")
