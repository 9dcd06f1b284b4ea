"""Moving from other brokers: their configuration becomes a network file, and what has no counterpart is listed.

mosquitto_conf  mosquitto.conf: listeners, TLS, users, limits
mosquitto_acl   Mosquitto's ACL file: access rules
"""

from overlane.migration.mosquitto_conf import Migrated, migrated

__all__ = ["Migrated", "migrated"]
