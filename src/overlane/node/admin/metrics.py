"""Metrics for Prometheus: the counters of the broker, in the text format that Prometheus scrapes.

Nothing is kept here. A scrape reads the current counters of the state machines, the store and the loop. Labels are
reasons, directions and neighbours, never clients or topics: their number is limited by the code and the network file.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from overlane import __version__
from overlane.core.units import SECOND
from overlane.node.admin.inspection import Census, Inspection
from overlane.node.failures import KINDS
from overlane.node.store.timed import BOUNDS_NS
from overlane.pubsub.counters import Drop, Refusal

CONTENT_TYPE = CONTENT_TYPE_LATEST

_LINK_STATES = ("up", "suspect", "failed", "down")


class Metrics(Collector):
    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._census = Census()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    async def exposition(self) -> bytes:
        self._census = await self._inspection.census()
        return generate_latest(self._registry)

    async def families(self) -> list[Metric]:
        self._census = await self._inspection.census()
        return list(self._registry.collect())

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._broker()
        yield from self._clients()
        yield from self._traffic()
        yield from self._trouble()
        yield from self._store()
        yield from self._overlay()
        yield from self._recovery()
        yield from self._gateways()

    def _broker(self) -> Iterator[Metric]:
        inspection = self._inspection
        info = {"name": inspection.name, "version": __version__}
        yield InfoMetricFamily("overlane_broker", "The broker.", value=info)
        yield _gauge("overlane_uptime_seconds", "Time since the broker started.", inspection.uptime_s)
        yield _gauge(
            "overlane_ready", "1 if the broker accepts clients, as /ready reports.", not inspection.not_ready()
        )
        lag = GaugeMetricFamily("overlane_loop_lag_seconds", "Delay of the event loop.", labels=["of"])
        lag.add_metric(["average"], inspection.loop_lag.lag_s)
        lag.add_metric(["worst"], inspection.loop_lag.lag_max_s)
        yield lag

    def _clients(self) -> Iterator[Metric]:
        state, census = self._inspection.driver.server.state, self._census
        retained = state.retained
        yield _gauge(
            "overlane_connections", "Open connections, including those not accepted yet.", len(state.connections)
        )
        lingering = len(self._inspection.driver.lingering)
        yield _gauge(
            "overlane_connections_lingering",
            "Connections closed by the broker whose clients have not read the reason yet.",
            lingering,
        )
        yield _gauge("overlane_clients_connected", "Clients connected.", census.clients)
        yield _gauge("overlane_sessions", "Sessions, including those of disconnected clients.", len(state.sessions))
        yield _gauge("overlane_subscriptions", "Subscriptions.", len(state.subscriptions))
        yield _gauge(
            "overlane_queue_messages", "QoS 1 and 2 messages not acknowledged by clients.", census.queue_messages
        )
        yield _gauge("overlane_queue_bytes", "Bytes of these messages.", census.queue_bytes)
        yield _gauge("overlane_in_flight_messages", "QoS 1 and 2 messages sent and not acknowledged.", census.in_flight)
        yield _gauge("overlane_retained_messages", "Retained messages.", len(retained))
        yield _gauge("overlane_retained_bytes", "Bytes of these messages.", retained.bytes)
        accepted = state.counters.connections_accepted
        yield _counter("overlane_connections_accepted", "Accepted connections.", accepted)

    def _traffic(self) -> Iterator[Metric]:
        counters = self._inspection.driver.server.counters
        messages = CounterMetricFamily(
            "overlane_messages", "PUBLISH packets from and to clients.", labels=["direction"]
        )
        messages.add_metric(["in"], counters.messages_in)
        messages.add_metric(["out"], counters.messages_out)
        yield messages
        size = CounterMetricFamily("overlane_bytes", "Bytes of packets from and to clients.", labels=["direction"])
        size.add_metric(["in"], counters.bytes_in)
        size.add_metric(["out"], counters.bytes_out)
        yield size

    def _trouble(self) -> Iterator[Metric]:
        counters = self._inspection.driver.server.counters
        dropped = CounterMetricFamily("overlane_dropped", "Messages that did not reach a client.", labels=["reason"])
        for drop in Drop:
            dropped.add_metric([drop.value], counters.dropped[drop])
        yield dropped
        filtered = CounterMetricFamily(
            "overlane_filtered", "Messages that content filters left out.", labels=["reason"]
        )
        filtered.add_metric(["condition"], counters.filtered)
        filtered.add_metric(["not JSON"], counters.filtered_not_json)
        yield filtered
        mediated = CounterMetricFamily(
            "overlane_mediated", "Messages to which rules of mediation were applied.", labels=["result"]
        )
        done = counters.mediated - counters.mediation_dropped - counters.mediation_failed
        mediated.add_metric(["passed or waiting"], done)
        mediated.add_metric(["dropped"], counters.mediation_dropped)
        mediated.add_metric(["failed"], counters.mediation_failed)
        yield mediated
        refused = CounterMetricFamily("overlane_refused", "Refused connections and packets.", labels=["reason"])
        for refusal in Refusal:
            refused.add_metric([refusal.value], counters.refused[refusal])
        yield refused
        errors = CounterMetricFamily(
            "overlane_internal_errors", "Unexpected exceptions of the broker that were isolated.", labels=["of"]
        )
        for kind in KINDS:
            errors.add_metric([kind], self._inspection.driver.failures.counts[kind])
        yield errors
        yield _counter("overlane_throttled", "Times that reading from a client was slowed down.", counters.throttled)
        yield _counter("overlane_dead_letters", "Messages put on the dead-letter topic.", counters.dead_letters)

    def _store(self) -> Iterator[Metric]:
        store, is_durable = self._inspection.store, self._inspection.is_durable
        yield _gauge("overlane_store_durable", "1 if records are kept on disk.", is_durable)
        yield _gauge("overlane_store_failing", "1 while writing to disk fails.", store.failing is not None)
        yield _gauge("overlane_store_pending_turns", "Turns whose records are not on disk yet.", store.pending)
        yield _gauge("overlane_store_quarantined", "Damaged records quarantined at the start.", len(store.quarantined))
        unknown = sum(store.unknown.values())
        yield _gauge("overlane_store_unknown", "Records of kinds unknown to this release, kept unchanged.", unknown)
        buckets, so_far = [], 0
        for bound_ns, count in zip((*BOUNDS_NS, None), store.buckets, strict=True):
            so_far += count
            buckets.append(("+Inf" if bound_ns is None else repr(bound_ns / SECOND), so_far))
        yield HistogramMetricFamily(
            "overlane_store_commit_seconds",
            "Time from the end of a turn until its records are on disk.",
            buckets=buckets,
            sum_value=store.latency_total_ns / SECOND,
        )

    def _gateways(self) -> Iterator[Metric]:
        """Only of gateways that the file has: other names are those of clients."""
        gateways = [
            (one, at)
            for one in self._inspection.network.gateways
            for at in self._inspection.gateways().items
            if at.name == one.name
        ]
        if not gateways:
            return
        up = GaugeMetricFamily("overlane_gateway_up", "1 if both sides are connected.", labels=["gateway"])
        labels = ["gateway", "direction"]
        passed = CounterMetricFamily("overlane_gateway_messages", "Forwarded messages.", labels=labels)
        backlog = GaugeMetricFamily("overlane_gateway_backlog", "Waiting messages.", labels=labels)
        lost = CounterMetricFamily("overlane_gateway_dropped", "Messages refused or dropped.", labels=labels)
        for one, at in gateways:
            up.add_metric([one.name], float(at.state == "up"))
            for direction, lane in (("in", at.inwards), ("out", at.outwards)):
                passed.add_metric([one.name, direction], lane.passed)
                backlog.add_metric([one.name, direction], max(lane.waiting, lane.backlog or 0))
                lost.add_metric([one.name, direction], lane.refused + lane.dropped)
        yield from (up, passed, backlog, lost)

    def _recovery(self) -> Iterator[Metric]:
        """Only of a broker that has copies, or should have."""
        recovery = self._inspection.recovery()
        if not recovery.epoch:
            return
        yield _gauge("overlane_recovery_epoch", "Epoch of the replica set.", recovery.epoch)
        in_sync = sum(one.in_sync for one in recovery.mirrors)
        yield _gauge("overlane_recovery_mirrors_in_sync", "Copies that may continue the broker.", in_sync)
        lag = GaugeMetricFamily(
            "overlane_recovery_lag_bytes", "Bytes not confirmed on the disk of a copy.", labels=["host"]
        )
        behind = GaugeMetricFamily(
            "overlane_recovery_lag_seconds", "Age of the first change that a copy lacks.", labels=["host"]
        )
        for one in recovery.mirrors:
            lag.add_metric([one.host], one.lag_bytes)
            behind.add_metric([one.host], one.lag_ms / 1_000)
        yield lag
        yield behind
        traffic = CounterMetricFamily(
            "overlane_recovery_bytes", "Bytes of replication connections, by direction.", labels=["direction"]
        )
        traffic.add_metric(["in"], recovery.bytes_in)
        traffic.add_metric(["out"], recovery.bytes_out)
        yield traffic
        alarms = CounterMetricFamily("overlane_recovery_alarms", "Reported, by kind.", labels=["kind"])
        for kind, count in sorted(recovery.alarms.items()):
            alarms.add_metric([kind], count)
        yield alarms

    def _overlay(self) -> Iterator[Metric]:
        inspection = self._inspection
        for name, value in inspection.driver.core.counters.items():
            if name == "retained_bytes":
                yield _gauge(
                    "overlane_overlay_unacknowledged_bytes",
                    "Bytes of parcels not acknowledged by other brokers.",
                    value,
                )
            elif name == "suspected_links":
                yield _gauge(
                    "overlane_overlay_suspected_links", "Links between other brokers that routes avoid.", value
                )
            else:
                yield _counter(f"overlane_overlay_{name}", f"{name.replace('_', ' ').capitalize()}.", value)
        state = GaugeMetricFamily("overlane_link_state", "1 for the state of each link.", labels=["peer", "state"])
        latency = GaugeMetricFamily("overlane_link_latency_seconds", "Measured one-way latency.", labels=["peer"])
        jitter = GaugeMetricFamily(
            "overlane_link_jitter_seconds", "Measured jitter of the round trip.", labels=["peer"]
        )
        loss = GaugeMetricFamily("overlane_link_loss_ratio", "Measured loss ratio.", labels=["peer"])
        queue = GaugeMetricFamily("overlane_link_queue_bytes", "Bytes queued for each link.", labels=["peer"])
        datagrams = CounterMetricFamily(
            "overlane_link_datagrams", "Datagrams of the present connection.", labels=["peer", "what"]
        )
        usable = GaugeMetricFamily(
            "overlane_link_datagrams_usable", "1 if messages with a deadline are sent in datagrams.", labels=["peer"]
        )
        path_labels = ["peer", "local", "remote"]
        path_state = GaugeMetricFamily(
            "overlane_link_path_state", "1 for the state of each path of a link.", labels=[*path_labels, "state"]
        )
        path_latency = GaugeMetricFamily(
            "overlane_link_path_latency_seconds", "Measured one-way latency of each path.", labels=path_labels
        )
        path_loss = GaugeMetricFamily("overlane_link_path_loss_ratio", "Loss ratio of each path.", labels=path_labels)
        for link in inspection.links():
            for path in link.paths:
                labels = [link.peer, path.local, path.remote]
                path_state.add_metric([*labels, path.state], 1)
                path_loss.add_metric(labels, path.loss)
                if path.latency_ms is not None:
                    path_latency.add_metric(labels, path.latency_ms / 1e3)
            if (beside := link.datagrams) is not None:
                usable.add_metric([link.peer], beside.state != "probing")
                for what, count in (("sent", beside.sent), ("received", beside.received), ("lost", beside.lost)):
                    datagrams.add_metric([link.peer, what], count)
                for reason, count in beside.refused.items():
                    datagrams.add_metric([link.peer, reason], count)
            for one in _LINK_STATES:
                state.add_metric([link.peer, one], link.state == one)
            queue.add_metric([link.peer], link.queue_bytes)
            if link.latency_ms is not None and link.jitter_ms is not None and link.loss is not None:
                latency.add_metric([link.peer], link.latency_ms / 1e3)
                jitter.add_metric([link.peer], link.jitter_ms / 1e3)
                loss.add_metric([link.peer], link.loss)
        yield from (state, latency, jitter, loss, queue, usable, datagrams, path_state, path_latency, path_loss)
        yield _counter(
            "overlane_link_connections_moved",
            "Connections that continued over another path.",
            inspection.overlay.multipath.moved,
        )
        sockets = inspection.overlay.sockets
        if sockets is not None:
            yield _counter("overlane_datagrams_strange", "Datagrams that belong to no link.", sockets.strange)


def _gauge(name: str, told: str, value: float) -> Metric:
    return GaugeMetricFamily(name, told, value=float(value))


def _counter(name: str, told: str, value: float) -> Metric:
    return CounterMetricFamily(name, told, value=value)
