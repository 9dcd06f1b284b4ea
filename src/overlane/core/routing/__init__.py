"""Routes: how they are chosen, announced and set up, which paths are trusted, and how parcels follow them."""

__all__ = ["paths", "signalling"]
