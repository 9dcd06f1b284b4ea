"""Certificates, users and passwords, and proofs of incarnations."""
