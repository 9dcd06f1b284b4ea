"""Links to neighbours: dialling, greeting, connections and datagrams, emulated links."""

__all__: list[str] = []
