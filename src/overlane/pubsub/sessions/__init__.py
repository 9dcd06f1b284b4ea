"""Sessions: what is kept for a client between its connections, and what is published when it is lost."""
