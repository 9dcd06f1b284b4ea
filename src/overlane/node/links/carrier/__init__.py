"""Links that an existing MQTT or AMQP broker carries: connections between two brokers as messages."""

__all__ = ["tunnels"]
