"""Reads [otlp]: traces and metrics for an OpenTelemetry collector."""

from overlane.network.schema import Otlp
from overlane.network.sections.logins import url
from overlane.network.syntax import kinds
from overlane.network.syntax.table import Table
from overlane.quantities import SECOND

METRICS_MIN_NS = SECOND
METRICS_MAX_NS = 3_600 * SECOND


def read_otlp(table: Table) -> Otlp:
    default = Otlp()
    every = kinds.duration(
        at_least_ns=METRICS_MIN_NS, at_most_ns=METRICS_MAX_NS, allowed='a duration from 1s to 1h, as in "15s"'
    )
    otlp = Otlp(
        endpoint=table.optional("endpoint", url('a URL such as "http://127.0.0.1:4318", without a user'), None),
        sample=table.optional("sample", kinds.share(), default.sample),
        topics=table.many("topics", kinds.topic_filter()) or default.topics,
        metrics_ns=table.optional("metrics", every, None),
    )
    if otlp.endpoint is None:
        for field in ("sample", "topics", "metrics"):
            if field in table:
                table.refuse(field, "only with endpoint")
    table.close()
    return otlp
