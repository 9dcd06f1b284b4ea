"""What is wrong with the text of a selector, and where."""

from overlane.errors import OverlaneError


class SelectorError(OverlaneError, ValueError):
    """`position`: of the character at fault, from 1."""

    error_code = "OVL-130"

    def __init__(self, position: int, found: str, expected: str) -> None:
        super().__init__(f"at character {position}: found {found}, expected {expected}")
        self.position = position
        self.found = found
        self.expected = expected
