"""The admin API, as far as its server (the broker) and its clients (CLI, monitor, pipeline, testbed) share it.

    views             request and response bodies
    topicfilters      the topic filters by which messages are counted
    client            blocking HTTP client
    asyncclient       asynchronous HTTP client with a persistent connection
    supervisorclient  client of the control socket of `overlane up`
    httpaccess        which HTTP requests are authorized: token, user, host and origin
    httpserver        bounded HTTP server inside a running event loop

Nothing here imports `overlane.node`: the broker builds on this package as its clients do.
"""
