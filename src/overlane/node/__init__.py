"""A broker that runs.

    clock             the time, which never goes back
    throttle          of each kind of event a few are told, the rest counted
    logs              one line per event, which nobody can forge, flood or block
    journal           what happens to clients, as lines of the log

    datadirectory     a directory of its own, for one broker at a time
    writeaheadlog     SQLite's log: damage told from the end
    sqlitepages       SQLite's pages: rows found without the help of SQLite
    recordformat      the file of records: tables, header, whether it is sound
    salvage           a damaged file: what can be read goes into a fresh one
    recordfile        the file of records, open: transactions of many changes
    reserve           disk space held back for when there is none left
    storeerror        why a store cannot write
    store             the durable store: turns become durable together, in order, in a thread of their own
    memorystore       the same contract without a disk, for tests
    nostore           none at all, for a broker that may forget everything when it ends
    timedstore        a store that is timed

    secretfile        files that hold secrets: written whole, for their owner alone
    users             the users file: who can log in with a password
    logins            is this the password of this user? In threads, few at once
    tls               contexts for listeners and connections, and whom a client's certificate names
    birthproof        what proves a broker's life to those who are not its neighbours

    emulation         a wide area played on one machine
    greeting          two brokers prove to each other who they are
    datagramseal      datagrams between two brokers: their bytes, and whether they are believed
    datagramflight    which of them are under way, and how many more the path takes
    datagrampath      whether there is a path for them
    datagramsocket    the sockets they come and go by
    datagramlink      those of one link
    pace              what the line of a link takes, where its rate is known
    overlaylink       a connection to a neighbour, and the datagrams beside it
    redialling        which address of a neighbour is tried next, and when
    overlay           neighbours: who is dialled when, and which connection counts
    neighbourhood     the neighbours that the network file gives a broker, now and when it is read again

    uplink            the overlay's core as the MQTT server sees it
    clientlink        a connection to a client
    telemetry         whether and where a broker records what it does
    driver            turns of MQTT server and core, and what they want done
    doorman           who knocks, and whether it may come in now
    websocket         MQTT in a WebSocket
    binding           sockets that listen
    listeners         where clients come in

    pulse             how late the loop is, and how much passes a second
    paging            a page of many things, found without holding up the loop
    views             what the admin API answers, typed
    sessionviews      sessions, connections and subscriptions as views
    tally             what other brokers' messages were handed to clients here, how old, and how many in time
    logbook           what the overlay's side did lately, and why
    survey            a running broker as views
    metrics           the same for Prometheus
    operations        the operations of the admin API
    linkoperations    those on neighbours and emulated links
    planbook          the plans that a broker follows and followed
    planoperations    the operations on these
    streamoperations  those on streams and writers
    openapi           the description of all of them
    gate              who is answered by HTTP
    httpserver        HTTP in a loop that has other things to do
    admin             the server of the admin API
    oversight         all of these, for one broker

    reloading         the network file read again while the broker runs
    node              one broker, from its start to a clean end
    supervisor        all brokers of a file, each a process that is started again when it dies
    control           brokers of a supervisor stopped and started from outside

Dependencies point upwards in this list.
"""
