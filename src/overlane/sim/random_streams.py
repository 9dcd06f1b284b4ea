"""Seeded randomness, one stream per purpose.

A stream is identified by the seed and its purpose, such as one direction of one link: the traffic of one link does not
change the random numbers of another, so a change to a scenario stays a small change.

Callers use `random()` and the functions here, and only `+ - * /` on the results. Those are exact on every machine,
which logarithms and the like are not, and a digest must be.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def stream(seed: int, *purpose: object) -> random.Random:
    """The stream for this purpose. Its words are hashed by `random` itself with SHA-512, never by `hash`."""
    return random.Random("/".join(["overlane", str(seed), *map(str, purpose)]))


def between(luck: random.Random, least: int, most: int) -> int:
    """A whole number from `least` to `most`, both included."""
    return least + int(luck.random() * (most - least + 1))


def share(luck: random.Random, least: float, most: float) -> float:
    return least + luck.random() * (most - least)


def chance(luck: random.Random, probability: float) -> bool:
    return luck.random() < probability


def one_of(luck: random.Random, choices: Sequence[T]) -> T:
    return choices[int(luck.random() * len(choices))]


def some_of(luck: random.Random, choices: Sequence[T], count: int) -> list[T]:
    """So many different ones, in the order in which they were drawn."""
    left = list(choices)
    return [left.pop(int(luck.random() * len(left))) for _ in range(min(count, len(left)))]
