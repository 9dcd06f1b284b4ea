"""The web protocols, pure: HTTP requests to messages and back.

publish_request.py    headers and body of a request to the messages it publishes; CloudEvents
responses.py          a message as the headers of a response or of a callback
event_stream.py       messages as Server-Sent Events
websub.py             requests of WebSub subscribers, their verification, and signatures
callback_address.py   which addresses a callback may have
allowances.py         how many messages a client may still publish
"""

__all__ = ["allowances", "callback_address", "errors", "event_stream", "publish_request", "responses", "websub"]
