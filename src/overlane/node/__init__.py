"""A broker that runs.

    datadirectory  a directory of its own, for one broker at a time
    writeaheadlog  SQLite's log: damage told from the end
    sqlitepages    SQLite's pages: rows found without the help of SQLite
    recordformat   the file of records: tables, header, whether it is sound
    salvage        a damaged file: what can be read goes into a fresh one
    recordfile     the file of records, open: transactions of many changes
    reserve        disk space held back for when there is none left
    storeerror     why a store cannot write
    store          the durable store: turns become durable together, in order, in a thread of their own
    memorystore    the same contract without a disk, for tests
    secretfile     files that hold secrets: written whole, for their owner alone
    users          the users file: who can log in with a password
    logins         is this the password of this user? In threads, few at once
    tls            contexts for listeners and connections, and whom a client's certificate names

Dependencies point upwards in this list.
"""
