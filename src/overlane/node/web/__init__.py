"""The web side of a broker: HTTP publishing, Server-Sent Events and a WebSub hub, in the event loop.

service          the parts put together, and their end
connections      HTTP connections of the listeners `http` and `http_tls`
access           who asks: users, certificates, anonymous clients, origins of web pages
topics           POST and GET of topics
events           Server-Sent Events: live topics, and streams from a position on
hub              WebSub: verification of subscribers, delivery with retries
callback_client  requests to callbacks, guarded against reaching inside
"""

__all__: list[str] = []
