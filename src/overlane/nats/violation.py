"""What a client must not say: it is told why, and its connection is closed."""

from overlane.errors import OverlaneError
from overlane.pubsub.counters import Refusal


class Violation(OverlaneError):
    """`error` is what NATS calls it, `told` a sentence for operators."""

    error_code = "OVL-308"

    def __init__(self, error: str, told: str, why: Refusal = Refusal.MALFORMED) -> None:
        super().__init__(told)
        self.error = error
        self.told = told
        self.why = why
