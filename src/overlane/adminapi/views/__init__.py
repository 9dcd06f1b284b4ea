"""The request and response bodies of the admin API, typed.

    view        the base of all of them, and errors
    broker      a broker as a whole, and its health
    clients     sessions, connections, subscriptions, topics
    gateways    gateways, as they tell their state; times there are seconds since 1970
    items       the directory of items
    links       links and routes
    monitoring  events, deliveries, and all at once
    plans       plans that a broker follows
    reservations  advertisements, reservations, and what links have promised
    streams     streams and writers

The OpenAPI document is generated from these types, and clients of the API decode responses into them. Times are
durations, so clocks need not agree. Lists that grow with the number of clients or topics are paginated.
"""

from overlane.adminapi.views.broker import (
    OVERLAY_LOSSES,
    BrokerState,
    BrokerView,
    CoordinationView,
    HealthView,
    LoopView,
    MirrorView,
    ProcessView,
    QueuesView,
    RatesView,
    ReadyView,
    RecoveryView,
    RetainedView,
    StoreState,
    StoreView,
    TrafficView,
)
from overlane.adminapi.views.clients import (
    ClientDetail,
    ClientPage,
    ClientView,
    ConnectionView,
    RetainedMessageView,
    RetainedPage,
    RetainedRemoved,
    SubscriptionPage,
    SubscriptionView,
    TopicPage,
    TopicView,
)
from overlane.adminapi.views.gateways import GatewayList, GatewayView, LaneView, SideView
from overlane.adminapi.views.items import DirectoryView, ItemView
from overlane.adminapi.views.links import (
    DatagramsState,
    DatagramsView,
    EmulationView,
    LinkCondition,
    LinkList,
    LinkView,
    PathState,
    PathView,
    RouteList,
    RouteView,
)
from overlane.adminapi.views.monitoring import (
    DeliveryList,
    DeliveryView,
    EventKind,
    EventList,
    EventView,
    PublishedView,
    SnapshotView,
)
from overlane.adminapi.views.plans import PlanView, StoredPlanView
from overlane.adminapi.views.reservations import (
    AdvertisedView,
    LinkFlowView,
    LinkReservationsView,
    ReservationsView,
    ReservationView,
    TSpecView,
)
from overlane.adminapi.views.streams import (
    StreamList,
    StreamMessagePage,
    StreamMessageView,
    StreamView,
    WriterBatchView,
    WriterMessageView,
    WriterProgressView,
)
from overlane.adminapi.views.view import ErrorView, View

__all__ = [
    "OVERLAY_LOSSES",
    "AdvertisedView",
    "BrokerState",
    "BrokerView",
    "ClientDetail",
    "ClientPage",
    "ClientView",
    "ConnectionView",
    "CoordinationView",
    "DatagramsState",
    "DatagramsView",
    "DeliveryList",
    "DeliveryView",
    "DirectoryView",
    "EmulationView",
    "ErrorView",
    "EventKind",
    "EventList",
    "EventView",
    "GatewayList",
    "GatewayView",
    "HealthView",
    "ItemView",
    "LaneView",
    "LinkCondition",
    "LinkFlowView",
    "LinkList",
    "LinkReservationsView",
    "LinkView",
    "LoopView",
    "MirrorView",
    "PathState",
    "PathView",
    "PlanView",
    "ProcessView",
    "PublishedView",
    "QueuesView",
    "RatesView",
    "ReadyView",
    "RecoveryView",
    "ReservationView",
    "ReservationsView",
    "RetainedMessageView",
    "RetainedPage",
    "RetainedRemoved",
    "RetainedView",
    "RouteList",
    "RouteView",
    "SideView",
    "SnapshotView",
    "StoreState",
    "StoreView",
    "StoredPlanView",
    "StreamList",
    "StreamMessagePage",
    "StreamMessageView",
    "StreamView",
    "SubscriptionPage",
    "SubscriptionView",
    "TSpecView",
    "TopicPage",
    "TopicView",
    "TrafficView",
    "View",
    "WriterBatchView",
    "WriterMessageView",
    "WriterProgressView",
]
