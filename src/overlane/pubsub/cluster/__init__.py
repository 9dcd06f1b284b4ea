"""Messages, retained messages and shared subscriptions across the brokers of one overlay."""
