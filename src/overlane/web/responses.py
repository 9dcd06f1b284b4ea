"""A message as HTTP headers: of the response to GET, and of a callback. The reverse of `publish_request`."""

from urllib.parse import quote

from overlane.pubsub.properties import Properties
from overlane.web.publish_request import CE_PREFIX, CE_REQUIRED

_SAFE = " !#$&'()*+,-./:;<>?@[]^_`{|}~"
_UNCLEAN = str.maketrans("", "", "\r\n\0")


def message_headers(topic: str, properties: Properties) -> list[tuple[str, str]]:
    """With ce- headers if it is a CloudEvent in the binary form."""
    content_type = (properties.content_type or "application/octet-stream").translate(_UNCLEAN)
    if not content_type.isascii():
        content_type = "application/octet-stream"
    found = [("content-type", content_type), ("overlane-topic", quote(topic, "/ "))]
    if properties.response_topic is not None:
        found.append(("overlane-response-topic", quote(properties.response_topic, "/")))
    if properties.correlation_data is not None:
        found.append(("overlane-correlation-data", quote(properties.correlation_data, "")))
    is_event = {*CE_REQUIRED} <= {name for name, _ in properties.user_properties}
    for name, value in properties.user_properties:
        if is_event and name.isascii() and name.isalnum():
            found.append((CE_PREFIX + name.lower(), quote(value, _SAFE)))
        else:
            found.append(("overlane-property", f"{quote(name, '')}={quote(value, _SAFE)}"))
    return found


def links(hub_url: str, self_url: str) -> tuple[str, str]:
    """The header by which WebSub subscribers find the hub."""
    return "link", f'<{hub_url}>; rel="hub", <{self_url}>; rel="self"'
