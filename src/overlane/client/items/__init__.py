"""A client that follows the directory of items: sessions to both brokers of an item, and a switch when one fails.

item_client   the API: as `Client`, with a home session for everything that is no item's
sessions      a session at every broker of items that are used, watched by `overlane.items.switching`
publishing    messages with an identity, to one broker or to two, until one of them has acknowledged
subscribing   one subscription of the application at several brokers; every message once
"""

from overlane.client.items.item_client import ItemClient

__all__ = ["ItemClient"]
