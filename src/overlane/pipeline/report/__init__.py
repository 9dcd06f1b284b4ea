"""The report of a run: one self-contained HTML page.

`svg` draws plots, `sections` selects the content, `page` assembles the page; `flow_profiles` proposes profiles to
advertise.
"""

__all__ = ["flow_profiles", "page", "sections"]
