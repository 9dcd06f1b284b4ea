"""The kinds of records that pubsub writes, in the order of recovery: a record comes after those it depends on.

Messages come before the queues that contain them, sessions and streams before the records that belong to them.
"""

from overlane.core.records import RecordKind
from overlane.pubsub.delivery.queue_records import QUEUE_KIND
from overlane.pubsub.message import MESSAGE_KIND
from overlane.pubsub.publishing.mediating import MEDIATION_KIND
from overlane.pubsub.retained.handouts import HANDOUT_KIND
from overlane.pubsub.retained.messages import RETAINED_KIND
from overlane.pubsub.retained.removals import REMOVAL_KIND
from overlane.pubsub.sessions.session import (
    DEDUPLICATION_KIND,
    RECEIVED_KIND,
    REPLAY_KIND,
    SESSION_KIND,
    SUBSCRIPTION_KIND,
)
from overlane.pubsub.sessions.wills import WILL_KIND
from overlane.pubsub.streams.backfill import BACKFILL_KIND
from overlane.pubsub.streams.callbacks import CALLBACK_KIND
from overlane.pubsub.streams.log import LOG_KIND, STREAM_KIND
from overlane.pubsub.streams.writers import WRITER_KIND

KINDS: tuple[RecordKind, ...] = (
    MESSAGE_KIND,
    RETAINED_KIND,
    REMOVAL_KIND,
    HANDOUT_KIND,
    SESSION_KIND,
    SUBSCRIPTION_KIND,
    RECEIVED_KIND,
    REPLAY_KIND,
    DEDUPLICATION_KIND,
    QUEUE_KIND,
    WILL_KIND,
    STREAM_KIND,
    LOG_KIND,
    BACKFILL_KIND,
    WRITER_KIND,
    CALLBACK_KIND,
    MEDIATION_KIND,
)
