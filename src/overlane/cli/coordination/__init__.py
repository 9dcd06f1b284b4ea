"""Commands around ZooKeeper: an ensemble on this machine."""

__all__: list[str] = []
