"""A broker that runs.

    datadirectory  a directory of its own, for one broker at a time
    recordfile     records in an SQLite file: format, checks, transactions
    store          the durable store: turns become durable together, in order, in a thread of their own
    memorystore    the same contract without a disk, for tests
"""
