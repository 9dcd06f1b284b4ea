"""The item of a topic, as a column: by the filters of the network file, else by the leading levels of the topic.

Filters are compared level by level, as in MQTT; a topic that begins with $ is matched by no wildcard at the beginning.
Beside items of the file, those by levels are named as filters (`tolls/#`): none is taken for an item of the file.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as sf


def item_of(topic: str, filters: Sequence[tuple[str, str]], item_levels: int) -> Column:
    """`filters`: each with its item; the first that matches counts."""
    by_levels = sf.substring_index(topic, "/", item_levels)
    if not filters:
        return by_levels
    (first, item), *others = filters
    chosen = sf.when(_matches(topic, first), sf.lit(item))
    for topic_filter, item in others:
        chosen = chosen.when(_matches(topic, topic_filter), sf.lit(item))
    return chosen.otherwise(sf.concat(by_levels, sf.lit("/#")))


def _matches(topic: str, topic_filter: str) -> Column:
    wanted = topic_filter.split("/")
    levels = sf.split(topic, "/")
    is_open = wanted[-1] == "#"
    fixed = wanted[:-1] if is_open else wanted
    tests = [sf.size(levels) >= len(fixed) if is_open else sf.size(levels) == len(fixed)]
    tests += [sf.get(levels, place) == level for place, level in enumerate(fixed) if level != "+"]
    if wanted[0] in ("+", "#"):
        tests.append(~sf.startswith(sf.col(topic), sf.lit("$")))
    return reduce(lambda one, other: one & other, tests)
