"""Mirrors: a second broker for every item, for the failure of its primary.

`states` computes what every broker carries in every single failure; `solve` chooses.
"""

from overlane.planning.mirrors.solve import Mirroring, allocate_and_mirror, mirror_items

__all__ = ["Mirroring", "allocate_and_mirror", "mirror_items"]
