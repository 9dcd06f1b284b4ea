"""All brokers of a network file on one machine: supervised processes, and their control."""

__all__ = ["control", "service_manager", "supervisor"]
