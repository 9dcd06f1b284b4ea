"""The admin API, as far as its server (the broker) and its clients (CLI, monitor, pipeline, testbed) share it.

    views             request and response bodies
    topic_filters      the topic filters by which messages are counted
    client            blocking HTTP client
    async_client       asynchronous HTTP client with a persistent connection
    supervisor_client  client of the control socket of `overlane up`
    http_access        which HTTP requests are authorized: token, user, host and origin
    http_server        bounded HTTP server inside a running event loop

Nothing here imports `overlane.node`: the broker builds on this package as its clients do.
"""

__all__ = ["async_client", "client", "http_access", "http_server", "supervisor_client", "topic_filters", "views"]
