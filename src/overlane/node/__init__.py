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
    throttle       of each kind of event a few are told, the rest counted
    logs           one line per event, which nobody can forge, flood or block
    journal        what happens to clients, as lines of the log
    binding        sockets that listen
    timedstore     a store that is timed
    pulse          how late the loop is, and how much passes a second
    paging         a page of many things, found without holding up the loop
    views          what the admin API answers, typed
    survey         a running broker as views
    metrics        the same for Prometheus
    operations     the operations of the admin API, and openapi their description
    admin          their server
    oversight      all of these, for one broker
    reloading      the network file read again while the broker runs
    overlay        neighbours: who is dialled when, and which connection counts
    neighbourhood  the neighbours that the network file gives a broker, now and when it is read again
    supervisor     all brokers of a file, each a process that is started again when it dies

Dependencies point upwards in this list.
"""
