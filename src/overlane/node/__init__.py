"""A broker that runs.

datadirectory  a directory of its own, for one broker at a time
recordfile     records in an SQLite file: format, checks, transactions
store          the durable store: turns become durable together, in order, in a thread of their own
memorystore    the same contract without a disk, for tests
secretfile     files that hold secrets: written whole, for their owner alone
users          the users file: who can log in with a password
logins         is this the password of this user? In threads, few at once
tls            contexts for listeners and connections, and whom a client's certificate names
"""
