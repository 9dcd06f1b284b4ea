"""The command `overlane`: every capability, one word each."""
