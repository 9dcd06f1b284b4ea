"""The registry of every kind of record that a broker keeps. Each kind is declared beside the code that writes it."""

from overlane.core import record_kinds as of_core
from overlane.core.records import Registry
from overlane.pubsub import record_kinds as of_pubsub
from overlane.recovery.replication.stored_record import REPLICA_KIND

REGISTRY = Registry((*of_core.STORE_KINDS, REPLICA_KIND, *of_core.KINDS, *of_pubsub.KINDS))
