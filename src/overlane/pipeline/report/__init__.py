"""The report of a run: one self-contained HTML page.

`svg` draws plots, `sections` selects the content, `page` assembles the page.
"""

__all__ = ["page"]
