"""Duplicate window: has a parcel been here before?

Parcels of one life of one broker are numbered; the window remembers the last 65,536 numbers or so, as bits in words
of 1,024. What is older than the window counts as seen. A restarted broker numbers anew, under a new incarnation, in
a new window.
"""

WORD_BITS = 10
WORDS_KEPT = 64
LIVES_KEPT = 2


class DuplicateWindow:
    __slots__ = ("_floor", "_words")

    def __init__(self) -> None:
        self._words: dict[int, int] = {}
        self._floor = -1

    def is_new(self, number: int) -> bool:
        """Whether the number comes for the first time; it is remembered."""
        word = number >> WORD_BITS
        bits = self._words.get(word)
        bit = 1 << (number & ((1 << WORD_BITS) - 1))
        if bits is None:
            if word <= self._floor:
                return False
            self._words[word] = bit
            if len(self._words) > WORDS_KEPT:
                oldest = min(self._words)
                del self._words[oldest]
                self._floor = max(self._floor, oldest)
            return True
        if bits & bit:
            return False
        self._words[word] = bits | bit
        return True


class Duplicates:
    """The windows of all origins, for their latest lives."""

    def __init__(self) -> None:
        self._windows: dict[int, dict[int, DuplicateWindow]] = {}

    def is_new(self, origin: int, incarnation: int, number: int) -> bool:
        lives = self._windows.get(origin)
        window = lives.get(incarnation) if lives is not None else None
        if window is None:
            if lives is not None and len(lives) >= LIVES_KEPT and incarnation < min(lives):
                return False
            window = self.window(origin, incarnation)
        return window.is_new(number)

    def forget_after(self, origin: int, incarnation: int) -> None:
        """Lives after this one have not been."""
        lives = self._windows.get(origin, {})
        for later in [life for life in lives if life > incarnation]:
            del lives[later]

    def window(self, origin: int, incarnation: int) -> DuplicateWindow:
        """Of one life of a broker, in place of an earlier one's if there are too many."""
        lives = self._windows.setdefault(origin, {})
        window = lives.get(incarnation)
        if window is None:
            if len(lives) >= LIVES_KEPT:
                del lives[min(lives)]
            window = lives[incarnation] = DuplicateWindow()
        return window
