"""Selectors: conditions on messages in the selector language of JMS, a subset of the conditions of SQL-92.

    selector = Selector.parse("temperature > 20 AND room LIKE 'lab%'")
    selector.matches({"temperature": 21.5, "room": "lab1"}) is Match.TRUE

One implementation for content filters of subscriptions, selectors of AMQP links and rules of mediation. Pure.

    lexer.py           text to tokens
    syntax.py          the tree of an expression
    parser.py          tokens to a tree, checked for types
    patterns.py        the patterns of LIKE
    evaluation.py      a tree compiled to functions, with three-valued logic
    selector.py        `Selector` and `Expression`, for other parts
    message_values.py  the names of a message: fields of a JSON payload, user properties, levels of the topic
"""

from overlane.selectors.errors import SelectorError
from overlane.selectors.lexer import split_name
from overlane.selectors.message_values import UNREADABLE, MessageValues
from overlane.selectors.selector import Expression, Match, Selector, Values

__all__ = [
    "UNREADABLE",
    "Expression",
    "Match",
    "MessageValues",
    "Selector",
    "SelectorError",
    "Values",
    "split_name",
]
