"""Messages of AMQP (part 3, section 3.2) to messages of the broker, and back."""

__all__ = ["reading", "sections", "selecting", "writing"]
