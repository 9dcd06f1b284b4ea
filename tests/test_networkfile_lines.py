"""The lines of a TOML text: found past everything that looks like a table and is none."""

import tomllib

from overlane.network.syntax.lines import LineIndex

TRICKY = '''\
title = "not [a] table # nor a comment" # [this] = neither
[a."b.c".'d"e']
x = [ # one
  1, "]", [2,
  3],
  {deep = """
" ] } \\""" ]""", 'k' = '}' },
]
[[list]]
[[list.inner]]
y.z = \'\'\'
[[list]]
\'\'\'\'\'
[list.plain]
[[list]]
w = 1979-05-27 07:32:00
[[list.inner]]
[[list.inner]]
q = {p = {o = 1}}
'''


def test_lines_are_found_past_strings_comments_and_brackets() -> None:
    tomllib.loads(TRICKY)
    index = LineIndex(TRICKY)
    assert {
        path: index[path]
        for path in [
            ("title",),
            ("a",),
            ("a", "b.c", 'd"e', "x"),
            ("a", "b.c", 'd"e', "x", 1),
            ("a", "b.c", 'd"e', "x", 2, 1),
            ("a", "b.c", 'd"e', "x", 3, "k"),
            ("list", 0),
            ("list", 0, "inner", 0, "y", "z"),
            ("list", 0, "plain"),
            ("list", 1, "w"),
            ("list", 1, "inner", 1),
            ("list", 1, "inner", 1, "q", "p", "o"),
            ("list", 1, "inner", 1, "missing"),
            ("nowhere",),
        ]
    } == {
        ("title",): 1,
        ("a",): 2,
        ("a", "b.c", 'd"e', "x"): 3,
        ("a", "b.c", 'd"e', "x", 1): 4,
        ("a", "b.c", 'd"e', "x", 2, 1): 5,
        ("a", "b.c", 'd"e', "x", 3, "k"): 7,
        ("list", 0): 9,
        ("list", 0, "inner", 0, "y", "z"): 11,
        ("list", 0, "plain"): 14,
        ("list", 1, "w"): 16,
        ("list", 1, "inner", 1): 18,
        ("list", 1, "inner", 1, "q", "p", "o"): 19,
        ("list", 1, "inner", 1, "missing"): 18,
        ("nowhere",): 0,
    }
