"""Round trips to hosts that could have copies, measured over real connections."""

import asyncio

from overlane.core.units import NEVER, SECOND
from overlane.membership.endpoint import Endpoint
from overlane.node.recovery.hosts.distances import Distances
from overlane.node.recovery.replication.replication import ReplicaIdentity, Replication
from overlane.secret import Secret
from waiting import eventually_async

SECRET = Secret(b"a secret of sixteen bytes or more")


def test_hosts_are_measured_once_and_again_where_they_have_moved_and_one_that_is_gone_has_no_distance() -> None:
    async def go() -> None:
        own, denver, moved = (
            Replication(ReplicaIdentity(name, name, SECRET, is_open=False), 1 << 20)
            for name in ("seattle", "denver", "denver")
        )
        at, elsewhere = str(await denver.listen("127.0.0.1")), str(await moved.listen("127.0.0.1"))
        gone = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        nowhere = str(Endpoint("127.0.0.1", gone.sockets[0].getsockname()[1]))
        gone.close()
        measured = asyncio.Event()
        distances = Distances(own, measured.set)
        hosts = {"denver": at, "boise": nowhere}
        assert not distances.want(hosts)
        await eventually_async(lambda: distances.want(hosts), "all are measured", 60)
        assert measured.is_set()
        assert 0 < distances.round_trip["denver"] < SECOND
        assert distances.round_trip["boise"] == NEVER
        asked = denver.bytes_in
        for _ in range(3):
            assert distances.want(hosts)
            await asyncio.sleep(0)
        assert (denver.bytes_in, moved.bytes_in) == (asked, 0)
        assert distances.want({"denver": elsewhere}), "the former distance counts until the new one is known"
        assert list(distances.round_trip) == ["denver"]
        await eventually_async(lambda: moved.bytes_in > 0, "it is measured again", 60)
        distances.end()
        for one in (own, denver, moved):
            one.close()

    asyncio.run(go())
