"""Requests that cannot be answered as asked."""

from overlane.errors import OverlaneError


class BadWebRequest(OverlaneError, ValueError):
    """The fault of who asks; what is wrong with the request, and its HTTP status."""

    error_code = "OVL-131"

    def __init__(self, told: str, status: int = 400) -> None:
        super().__init__(told)
        self.status = status
