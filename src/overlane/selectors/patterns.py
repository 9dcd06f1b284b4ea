"""The patterns of LIKE: `%` is any characters, `_` is one; behind the escape character each stands for itself.

A text is compared in time that grows with its length times the length of the pattern, however the pattern is written:
it is enough to take each piece between two `%` at its first place, so the expression need not look back (atomic
groups), and a hostile pattern cannot keep the broker busy.
"""

import re


def like_pattern(pattern: str, escape: str = "") -> re.Pattern[str]:
    """For `fullmatch`; ValueError if nothing follows an escape character."""
    pieces = [""]
    characters = iter(pattern)
    for one in characters:
        if escape and one == escape:
            literal = next(characters, None)
            if literal is None:
                raise ValueError
            pieces[-1] += re.escape(literal)
        elif one == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if one == "_" else re.escape(one)
    first, *rest = pieces
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in middle if piece) + f".*{last}", re.DOTALL)
