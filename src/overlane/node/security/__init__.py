"""Certificates, users and passwords, and proofs of incarnations."""

__all__ = ["users"]
