"""Subscriptions: which sessions receive a topic."""
