"""Commands that start, join, stop and watch brokers, and manage their users."""
