"""The broker core under virtual time and a seeded network."""
