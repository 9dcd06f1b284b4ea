"""Mirrors: a second broker for every item, for the failure of its primary.

`states` computes what every broker carries in every single failure; `solve` chooses. `copies` places critical items and
their copies at once.
"""

from overlane.planning.mirrors.solve import Mirroring, allocate_and_mirror, mirror_items, nearest_mirroring

__all__ = ["Mirroring", "allocate_and_mirror", "mirror_items", "nearest_mirroring"]
