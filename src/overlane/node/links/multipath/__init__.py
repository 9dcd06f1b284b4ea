"""Several paths of a link: the uplinks of this machine, which paths are opened, and how each is measured."""

__all__: list[str] = []
