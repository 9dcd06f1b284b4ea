"""Hosts of a domain, as a running broker sees them: what they tell each other, how far away they are, who is lost."""

__all__: list[str] = []
