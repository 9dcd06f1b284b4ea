"""A testbed on one machine.

certificates  a throw-away authority, and certificates for brokers and clients
"""
