"""The durable store: records on disk, batches committed together, damage, disks that are full."""

__all__: list[str] = []
