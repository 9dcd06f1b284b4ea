"""What brokers answer a monitor, made up for tests."""

import msgspec

from overlane.adminapi.views import (
    BrokerView,
    DeliveryList,
    DeliveryView,
    EventList,
    EventView,
    LinkView,
    LoopView,
    ProcessView,
    PublishedView,
    QueuesView,
    RatesView,
    RetainedView,
    RouteView,
    SnapshotView,
    StoreView,
    TrafficView,
)

BROKER = BrokerView(
    name="",
    version="1",
    incarnation=1,
    uptime_s=1.0,
    state="serving",
    not_ready=(),
    listeners={"mqtt": "127.0.0.1:1883"},
    connections=0,
    clients=2,
    sessions=2,
    subscriptions=1,
    topics=0,
    retained=RetainedView(messages=0, bytes=0, messages_max=1, bytes_max=1),
    queues=QueuesView(messages=0, bytes=0, in_flight=0),
    traffic=TrafficView(messages_in=0, messages_out=0, bytes_in=0, bytes_out=0),
    rates=RatesView(messages_in=10.0, messages_out=20.0, bytes_in=0.0, bytes_out=0.0),
    throttled=0,
    dead_letters=0,
    dropped={},
    refused={},
    overlay={},
    links=0,
    links_up=0,
    store=StoreView(state="none", trouble="", commits=0, pending=0, latency_p50_us=0, latency_p99_us=0, quarantined=0),
    loop=LoopView(lag_us=0, lag_max_us=1500),
    process=ProcessView(id=1, memory_bytes=50 << 20, cpu_s=0.0),
)


def link(peer: str, state: str = "up", latency_ms: float | None = 10.0, **more: object) -> LinkView:
    found = {"peer": peer, "state": state, "latency_ms": latency_ms, "jitter_ms": 0.1, "loss": 0.0}
    return msgspec.convert(
        {**found, "queue_parcels": 0, "queue_bytes": 0, "queue_bytes_max": 1000, **more}, type=LinkView
    )


def route(number: int, paths: dict[str, list[list[str]]], topics: list[str], deadline_ms: float | None) -> RouteView:
    return msgspec.convert(
        {
            "id": number,
            "version": 1,
            "destinations": sorted(paths),
            "paths": paths,
            "latency_ms": dict.fromkeys(paths, 20.0),
            "deadline_ms": deadline_ms,
            "reliable": True,
            "routing": "multipath",
            "cause": "first use",
            "is_established": True,
            "topics": topics,
        },
        type=RouteView,
    )


def delivery(
    row: str, origin: str, messages: int, in_time: int, age_us: int = 10_000, missing: int = 0
) -> DeliveryView:
    ages_us = ((age_us, messages),) if messages else ()
    return DeliveryView(filter=row, origin=origin, messages=messages, in_time=in_time, missing=missing, ages_us=ages_us)


def glance(
    *links: LinkView,
    routes: tuple[RouteView, ...] = (),
    events: tuple[EventView, ...] = (),
    published: dict[str, int] | None = None,
    deliveries: tuple[DeliveryView, ...] = (),
    **broker: object,
) -> SnapshotView:
    return SnapshotView(
        broker=msgspec.structs.replace(BROKER, **broker),
        links=links,
        routes=routes,
        events=EventList(items=events, newest=max((one.number for one in events), default=0)),
        deliveries=DeliveryList(
            published=tuple(PublishedView(filter=row, messages=count) for row, count in (published or {}).items()),
            items=deliveries,
        ),
    )
