"""What is recorded of advertised flows."""

import mqtt5
from station import Station

from overlane.core.qos import QosClass
from overlane.mqtt.codec import codec5
from overlane.telemetry.rows import ReservedFlow

VIDEO = b'{"size": 100, "period_s": 0.1}'


def advertise(station: Station, document: bytes) -> None:
    camera = station.connect("advertiser")
    packet = mqtt5.PublishPacket("$overlane/advertise/plant/video", document, retain=True)
    station.server.receive(camera, codec5.write(packet), station.now)


def advertised() -> Station:
    station = Station()
    advertise(station, VIDEO)
    assert station.sampled(ReservedFlow) == []
    return station


def test_a_flow_is_recorded_every_ten_seconds_with_what_was_used_of_it() -> None:
    station = advertised()
    advertising = station.server.advertising
    flow = advertising.flow_of("plant/video")
    assert flow is not None
    for _ in range(3):
        advertising.classify(flow, QosClass(), 100, station.now)
    rows = [row for _ in range(10) for row in station.sampled(ReservedFlow)]
    (row,) = rows
    assert (row.filter, row.interval_ns, row.messages, row.excess_messages) == ("plant/video", 10 * 10**9, 3, 1)
    assert (row.payload_bytes, row.size_max, row.reserved, row.subscribers) == (300, 100, 0, 0)
    assert row.link_bytes == 300 + 3 * (96 + len("plant/video"))
    assert set(row.depths) == {300}


def test_an_idle_flow_is_recorded_too() -> None:
    station = advertised()
    (row,) = station.sampled(ReservedFlow, after_s=10)
    assert (row.messages, row.payload_bytes, set(row.depths)) == (0, 0, {0})
    assert row.advertised == round((100 + 96 + len("plant/video")) / 0.1)


def test_a_flow_that_is_withdrawn_is_recorded_no_more() -> None:
    station = advertised()
    advertise(station, b"")
    assert station.sampled(ReservedFlow, after_s=10) == []
