"""Retained messages, and their replay to new subscriptions."""
