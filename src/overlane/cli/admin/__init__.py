"""Commands that show what running brokers do: status, clients, topics, links and routes, through the admin API."""

__all__: list[str] = []
