"""Duplicate window: has a parcel been here before?

Parcels of one incarnation of one broker are numbered. The window remembers about the last 65,536 numbers, as bits in
words of 1,024. Numbers older than the window count as seen. A restarted broker numbers anew, under a new incarnation,
in a new window.
"""

WORD_BITS = 10
WORD_MASK = (1 << WORD_BITS) - 1
WORDS_KEPT = 64
INCARNATIONS_KEPT = 2


class DuplicateWindow:
    __slots__ = ("_floor", "_words")

    def __init__(self) -> None:
        self._words: dict[int, int] = {}
        self._floor = -1

    def record(self, number: int) -> bool:
        """Whether the number comes for the first time; it is remembered."""
        word = number >> WORD_BITS
        bits = self._words.get(word)
        bit = 1 << (number & WORD_MASK)
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


class DuplicateFilter:
    """The windows of all origins, for their latest incarnations."""

    def __init__(self) -> None:
        self._windows: dict[int, dict[int, DuplicateWindow]] = {}

    def record(self, origin: int, incarnation: int, number: int) -> bool:
        windows = self._windows.get(origin)
        window = windows.get(incarnation) if windows is not None else None
        if window is None:
            if windows is not None and len(windows) >= INCARNATIONS_KEPT and incarnation < min(windows):
                return False
            window = self.window(origin, incarnation)
        return window.record(number)

    def __len__(self) -> int:
        return len(self._windows)

    def forget(self, origin: int) -> None:
        """The broker is not known any more: nothing of it is taken until it is again."""
        self._windows.pop(origin, None)

    def forget_after(self, origin: int, incarnation: int) -> None:
        """Lives after this one have not been."""
        windows = self._windows.get(origin, {})
        for later in [known for known in windows if known > incarnation]:
            del windows[later]

    def window(self, origin: int, incarnation: int) -> DuplicateWindow:
        """Of one incarnation of a broker; it replaces the earliest one's if there are too many."""
        windows = self._windows.setdefault(origin, {})
        window = windows.get(incarnation)
        if window is None:
            if len(windows) >= INCARNATIONS_KEPT:
                del windows[min(windows)]
            window = windows[incarnation] = DuplicateWindow()
        return window
