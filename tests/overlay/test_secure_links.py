"""Links with mutual TLS, and brokers that can only dial."""

import asyncio
from contextlib import closing
from pathlib import Path

from brokers import free_port
from overlane.client import connect
from overlane.testbed.certificates import Authority
from overlays import Member, RealOverlay

SECURE = """
[security]
certificate = "{directory}/{name}.pem"
key = "{directory}/{name}.key"
client_ca = "{directory}/{ca}.pem"
overlay_tls = true
"""


async def _crosses(here: str, there: str) -> None:
    got: list[bytes] = []
    async with connect(there) as reader, connect(here) as writer:
        messages = reader.subscribe("t")

        async def read() -> None:
            async for message in messages:
                got.append(bytes(message.body))

        reading = asyncio.create_task(read())
        while not got:
            await writer.publish("t", b"x")
            await asyncio.sleep(0.05)
        reading.cancel()


class SecureOverlay(RealOverlay):
    """Two brokers, each with a file of its own, as on two machines: the certificates are each one's own."""

    def __init__(self, directory: Path, cas: dict[str, str]) -> None:
        super().__init__(directory, {"a-b": 'latency = "1ms"'})
        common = self.file.read_text()
        for name, member in self.members.items():
            own = directory / f"{name}.toml"
            own.write_text(common + SECURE.format(directory=directory, name=name, ca=cas[name]))
            member.use(own)


def test_brokers_with_certificates_of_one_authority_link(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    for name in "ab":
        authority.broker(name)
    net = SecureOverlay(tmp_path, {"a": "ours", "b": "ours"})
    with closing(_Ending(net)):
        net.start()
        asyncio.run(_crosses(net["a"].mqtt, net["b"].mqtt))


def test_a_certificate_of_another_authority_is_not_believed_and_that_is_said_once(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    ours.broker("a")
    theirs.broker("b")
    net = SecureOverlay(tmp_path, {"a": "ours", "b": "theirs"})
    with closing(_Ending(net)):
        for member in net.members.values():
            member.start()
        net.wait_until(lambda: all(refusals(one) for one in net.members.values()), "refused by both", 30.0)
        assert [len(refusals(one)) for one in net.members.values()] == [1, 1]
        answer = net["a"].ask("/links")
        assert isinstance(answer, dict)
        assert [(one["peer"], one["state"]) for one in answer["items"]] == [("b", "down")]


def refusals(member: Member) -> list[str]:
    lines = member.log.read_text().splitlines()
    return [line for line in lines if "warning" in line and "cannot reach" in line and "CERTIFICATE" in line]


def test_a_user_who_bears_a_brokers_name_is_no_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    authority.broker("a")
    authority.client("b")
    net = SecureOverlay(tmp_path, {"a": "ours", "b": "ours"})
    with closing(_Ending(net)):
        for member in net.members.values():
            member.start()
        net.wait_until(lambda: "its certificate says" in net["a"].log.read_text(), "refused", 30.0)


def test_a_broker_behind_nat_dials_and_is_not_dialled(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    text = net.file.read_text()
    hidden = net["a"]
    net.file.write_text(text.replace(hidden.table(), hidden.table() + "reach = []\n"))
    with closing(_Ending(net)):
        net.start()
        asyncio.run(_crosses(net["a"].mqtt, net["b"].mqtt))


def test_addresses_are_tried_in_turn(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    text = net.file.read_text()
    for name in "ab":
        table = net[name].table()
        dead = f"127.0.0.1:{free_port()}"
        text = text.replace(table, table + f'reach = ["{dead}", "{net[name].overlay}"]\n')
    net.file.write_text(text)
    with closing(_Ending(net)):
        net.start()
        asyncio.run(_crosses(net["b"].mqtt, net["a"].mqtt))


class _Ending:
    def __init__(self, net: RealOverlay) -> None:
        self._net = net

    def close(self) -> None:
        self._net.end()
