"""An advertisement: the traffic that a publisher announces, in the terms of `overlane plan reserve`.

    {"size": 1000, "period_s": 0.1}

as a JSON document on `$overlane/advertise/FILTER`, in the network file, or by the Python client. A document without
payload takes it back. Since topics have no wildcards, a filter with wildcards goes into the document (`filter`), and
the topic is then only a name. With the retain flag it outlives the publisher's connection, and a restart of the broker.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from overlane.core.topics import BadTopic, check_filter
from overlane.planning.problem import BadProblem
from overlane.planning.reserve import Profile, TokenBucket, TSpec
from overlane.pubsub.reservations.request import BadReservation, link_tspec

ADVERTISE = "$overlane/advertise/"
FILTER_BYTES_MAX = 256
"""As reservations carry it."""
DOCUMENT_BYTES_MAX = 16 * 1024

Excess = Literal["best-effort", "wait", "drop"]
"""What becomes of messages beyond the profile: sent without reservation, not read yet (QoS 0), or refused."""


@dataclass(frozen=True, slots=True)
class Advertisement:
    filter: str
    profile: Profile
    excess: Excess = "best-effort"
    type: str = ""
    content: str = ""
    """What the publisher says of its messages, for people."""

    @property
    def tspec(self) -> TSpec:
        return link_tspec(self.profile, self.filter, "publisher")


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    size: float | None = None
    size_min: float | None = None
    size_max: float | None = None
    rate_avg: float | None = None
    rate_max: float | None = None
    period_s: float | None = None
    token_bucket: TokenBucket | None = None
    excess: Excess = "best-effort"
    filter: str | None = None
    type: str = ""
    content: object = None


_decoder = msgspec.json.Decoder(_Document)


def checked(advertisement: Advertisement) -> Advertisement:
    """BadReservation."""
    topic_filter = advertisement.filter
    try:
        check_filter(topic_filter)
        _ = advertisement.tspec
    except BadTopic as bad:
        raise BadReservation(str(bad)) from None
    except BadProblem as bad:
        raise BadReservation(str(bad).replace("publisher.", "")) from None
    if topic_filter.startswith("$"):
        raise BadReservation(f"filter: got {topic_filter[:60]!a}; expected one that does not begin with $")
    if len(topic_filter.encode()) > FILTER_BYTES_MAX:
        raise BadReservation(f"filter: got more than {FILTER_BYTES_MAX} bytes; expected fewer")
    return advertisement


def read_advertisement(name: str, payload: bytes) -> Advertisement:
    """`name`: what follows the prefix in the topic. BadReservation."""
    if len(payload) > DOCUMENT_BYTES_MAX:
        raise BadReservation(f"got a document of {len(payload)} bytes; expected at most {DOCUMENT_BYTES_MAX}")
    try:
        document = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as bad:
        raise BadReservation(f'got {bad}; expected a profile such as {{"size": 1000, "period_s": 0.1}}') from None
    profile = Profile(
        document.size,
        document.size_min,
        document.size_max,
        document.rate_avg,
        document.rate_max,
        document.period_s,
        document.token_bucket,
    )
    content = "" if document.content is None else msgspec.json.encode(document.content).decode()
    return checked(Advertisement(document.filter or name, profile, document.excess, document.type, content))
