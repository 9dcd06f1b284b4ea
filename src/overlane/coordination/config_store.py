"""The configuration in ZooKeeper: pushed whole, with a version, only over the version that it was made from."""

import asyncio
import time

from overlane.coordination.client import CoordinationClient
from overlane.coordination.contract import Create, Done, Reason, Rejected, Replace
from overlane.coordination.records import CONFIG, ConfigRecord, decode, encode
from overlane.errors import Unavailable

TRIES = 3


async def read_config(session: CoordinationClient) -> ConfigRecord | None:
    """Unavailable or MalformedRecord; None where nothing has been pushed."""
    node = await session.read(CONFIG)
    return None if node is None else decode(CONFIG, node.data, ConfigRecord)


async def push_config(session: CoordinationClient, text: str, by: str, expected: int | None = None) -> ConfigRecord:
    """The configuration as it is now. Unavailable if somebody else pushes at the same time; with `expected`, if the
    version in ZooKeeper is another. A text that is there already is not pushed again."""
    for _ in range(TRIES):
        node = await session.read(CONFIG)
        before = None if node is None else decode(CONFIG, node.data, ConfigRecord)
        version = 0 if before is None else before.version
        if expected is not None and version != expected:
            raise Unavailable("configuration", f"version {version} is in ZooKeeper, not {expected}: pull and try again")
        if before is not None and before.text == text:
            return before
        record = ConfigRecord(version + 1, text, int(time.time()), by)
        data = encode(record)
        answer = await session.change(Create(CONFIG, data) if node is None else Replace(CONFIG, data, node.version))
        match answer:
            case Done():
                return record
            case Rejected(_, Reason.VERSION | Reason.EXISTS):
                await asyncio.sleep(0)  # somebody else was faster: look again
            case Rejected(_, reason):
                raise Unavailable("configuration", reason.value)
            case _:
                raise AssertionError(answer)
    raise Unavailable("configuration", "somebody else pushes at the same time")
