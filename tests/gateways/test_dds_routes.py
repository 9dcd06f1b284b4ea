"""Which topics of DDS cross, by what gateways announce; and samples as messages."""

import msgspec
import pytest

from overlane.gateways.dds.routes import JSON, Changes, Endpoint, Routes
from overlane.gateways.dds.samples import (
    Sample,
    SampleKind,
    crossing_qos,
    expiry_s,
    is_reliable,
    last_level,
    properties_of,
    sample_of,
    sample_topic,
)
from overlane.network import format_network, parse_network

QOS = {"Reliability": {"kind": "Reliable"}}
WRITER = Endpoint("temps", "plant::Reading", True, QOS, b"T")
READER = Endpoint("temps", "plant::Reading", False, {}, b"T")


def told(**topics: object) -> bytes:
    return msgspec.json.encode(topics, order="sorted")


def test_a_topic_crosses_while_it_has_a_writer_here_and_a_reader_there() -> None:
    routes = Routes()
    first = routes.found("w", WRITER)
    announcement = told(temps={"type_name": "plant::Reading", "is_read": False, "writes": QOS, "type": b"T"})
    assert first == Changes(announcement=announcement), "nobody reads it elsewhere"
    there = told(temps={"type_name": "plant::Reading", "is_read": True})
    assert routes.announced("two", there) == Changes(open_readers=("temps",))
    assert routes.announced("three", there) == Changes(), "it is open already"
    assert routes.announced("two", b"") == Changes()
    assert routes.announced("three", told()) == Changes(close_readers=("temps",))


def test_there_is_a_writer_for_each_gateway_that_has_writers() -> None:
    routes = Routes()
    routes.found("r", READER)
    there = told(temps={"type_name": "plant::Reading", "writes": QOS})
    assert routes.announced("two", there) == Changes(open_writers=((("two", "temps"), QOS),))
    assert routes.announced("three", there) == Changes(open_writers=((("three", "temps"), QOS),))
    other = {"Reliability": {"kind": "BestEffort"}}
    changed = routes.announced("two", told(temps={"type_name": "plant::Reading", "writes": other}))
    assert (changed.close_writers, changed.open_writers) == ((("two", "temps"),), ((("two", "temps"), other),))
    lost = routes.lost("r")
    assert lost == Changes(close_writers=(("three", "temps"), ("two", "temps")), announcement=b"{}")


def test_an_application_without_type_information_waits_for_a_gateway_that_knows_the_type() -> None:
    routes = Routes()
    routes.found("w", WRITER._replace(type=b""))
    there = {"type_name": "plant::Reading", "is_read": True}
    assert routes.announced("two", told(temps=there)) == Changes()
    other = {"type_name": "other", "is_read": True, "type": b"O"}
    assert routes.announced("three", told(temps=other)) == Changes(), "another type"
    known = routes.announced("two", told(temps=there | {"type": b"T"}))
    assert known == Changes(types=(("temps", b"T"),), open_readers=("temps",))
    assert routes.announced("two", b"") == Changes(close_readers=("temps",))


def test_a_gateway_for_json_leaves_out_what_has_no_type_information() -> None:
    routes = Routes(is_json=True)
    assert not routes.found("w", WRITER._replace(type=b"")).open_readers
    assert routes.found("x", WRITER).open_readers == ("temps",)


def test_other_types_and_topics_do_not_cross() -> None:
    routes = Routes(["plant_*"])
    assert routes.found("w", WRITER) == Changes(), "its name is none of the file's"
    routes.found("x", WRITER._replace(topic="plant_1"))
    assert routes.announced("two", told(plant_1={"type_name": "other", "is_read": True})) == Changes()
    assert routes.found("d", WRITER._replace(topic="DCPSTopic")) == Changes()
    assert routes.lost("unknown") == Changes()


def test_json_needs_no_other_gateway() -> None:
    routes = Routes(is_json=True)
    assert routes.found("w", WRITER).open_readers == ("temps",)
    assert routes.found("r", READER).open_writers == (((JSON, "temps"), {}),)
    assert routes.lost("w").close_readers == ("temps",)


@pytest.mark.parametrize("body", [b"x", b"[]", b'{"a": 1}', b'{"a": {}}'])
def test_a_wrong_announcement_changes_nothing(body: bytes) -> None:
    routes = Routes()
    routes.found("w", WRITER)
    with pytest.raises(ValueError, match=r"."):
        routes.announced("two", body)
    assert routes.announced("two", told()) == Changes()


def test_samples_survive_the_way_through_messages() -> None:
    for sample in (Sample(SampleKind.WRITE, b"\0\1\0\0x", 17), Sample(SampleKind.DISPOSE, b"\0\1\0\0", 2**62)):
        assert sample_of(sample.data, dict(properties_of(sample, "one"))) == sample
    assert last_level(sample_topic("dds", "one", "a/b +#")) == "a/b +#"
    for properties in ({}, {"overlane-dds-time": "x"}, {"overlane-dds-time": "1", "overlane-dds-kind": "y"}):
        with pytest.raises(ValueError, match=r"."):
            sample_of(b"\0\1\0\0", properties)
    with pytest.raises(ValueError, match="CDR"):
        sample_of(b"", {"overlane-dds-time": "1", "overlane-dds-kind": "write"})


def test_qos_is_told_as_far_as_it_crosses() -> None:
    qos = {**QOS, "Liveliness": {"kind": "ManualByTopic", "lease_duration": 5}, "Userdata": {"data": b""}}
    assert crossing_qos(qos) == {**QOS, "Liveliness": {"kind": "Automatic", "lease_duration": 5}}
    assert (is_reliable(QOS), is_reliable({})) == (True, False)
    assert expiry_s({"Lifespan": {"lifespan": 1_500_000_000}}) == 2
    assert expiry_s({"Lifespan": {"lifespan": (1 << 63) - 1}}) is None


def test_gateways_are_read_and_written() -> None:
    text = (
        '[brokers.a]\n[[dds]]\nname = "one"\nbroker = "a"\ndomain = 7\ntopics = ["x*"]\nformat = "json"\nprefix = "p"\n'
    )
    network = parse_network(text)
    assert (network.dds[0].domain, network.dds[0].topics, network.dds[0].format) == (7, ("x*",), "json")
    assert parse_network(format_network(network)).dds == network.dds
