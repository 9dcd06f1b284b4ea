"""The admin API of a broker: its server, its operations, and what they read of the running broker."""
