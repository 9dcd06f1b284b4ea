"""One link to a neighbour: its queue and the order in it, its health, hop acknowledgements, and what is sent on it."""

__all__ = ["link_health", "link_view", "neighbour", "path_choice"]
