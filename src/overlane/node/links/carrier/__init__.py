"""Links that an existing MQTT broker carries: connections between two brokers as messages."""

__all__ = ["tunnels"]
