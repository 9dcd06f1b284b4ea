"""Streams in an overlay of real brokers: each message once, wherever it was published."""

from pathlib import Path

import pytest

from overlane.pipeline.streaming.stream_client import Credentials, StreamClient
from overlays import Member, RealOverlay, overlay
from watched import let_in

pytestmark = pytest.mark.slow


def publish(member: Member, payload: bytes) -> None:
    with let_in(int(member.mqtt.rpartition(":")[2]), f"publisher-{member.name}") as caller:
        caller.publish("in/a", payload)


def ask(member: Member) -> StreamClient:
    return StreamClient(member.admin, Credentials())


def payloads(member: Member, stream: str) -> list[bytes]:
    view = ask(member).get(stream)
    page = ask(member).read(stream, view.since_ns, view.first, view.next, 1_000)
    return [one.payload for one in page.messages]


def arrives(net: RealOverlay, stream: str, payload: bytes) -> None:
    """At west, though east may have to learn first that somebody wants it there."""

    def comes() -> bool:
        publish(net["east"], payload)
        return payload in payloads(net["west"], stream)

    net.wait_until(comes, f"{payload!r} in {stream}")


def test_a_stream_of_everything_hears_of_other_brokers_and_one_of_what_is_here_does_not(tmp_path: Path) -> None:
    with overlay(tmp_path, {"west-east": 'latency = "1ms"'}) as net:
        for member in (net["west"], net["east"]):
            ask(member).create("parts", "in/#", "here", with_retained=False)
        ask(net["west"]).create("all", "in/#", "everywhere", with_retained=False)
        arrives(net, "all", b"before")
        net["west"].kill()
        net["west"].start()
        arrives(net, "all", b"after")
        publish(net["west"], b"at west")
        assert payloads(net["west"], "parts") == [b"at west"]
        assert set(payloads(net["east"], "parts")) == {b"before", b"after"}
        assert payloads(net["west"], "all").count(b"at west") == 1
