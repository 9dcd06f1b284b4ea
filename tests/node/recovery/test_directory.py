"""The directory of a domain: what hosts announce is known to the others, through lost sessions and stale znodes."""

from collections.abc import Callable

from overlane.coordination.contract import Create, Event, Request, Transaction
from overlane.coordination.in_memory import InMemoryClient, InMemoryEnsemble
from overlane.node.recovery.hosts.directory import TRY_AGAIN, HostDirectory
from overlane.recovery.hosts.host_records import EndpointRecord, HostRecord, MirrorsRecord, MoveRecord, encode_record


class Process:
    def __init__(self, ensemble: InMemoryEnsemble, domain: str = "west") -> None:
        self.directory = HostDirectory(domain)
        self._events: list[Event] = []
        self.now = 0
        self.service: InMemoryClient = ensemble.connect(self._events.append)

    def settle(self) -> None:
        """All that is asked is answered."""
        for _ in range(100):
            self.now += TRY_AGAIN
            while self._events:
                self.directory.handle(self._events.pop(0), self.now)
            self.directory.tick(self.now)
            asked = self.directory.requests.take()
            for number, request in asked:
                self.service.ask(number, request)
            if not asked and not self._events:
                return
        raise AssertionError("it does not settle")


def settle(*processes: Process) -> None:
    for _ in range(4):
        for process in processes:
            process.settle()


def test_hosts_know_each_other_their_endpoints_and_where_copies_are_wanted() -> None:
    ensemble = InMemoryEnsemble()
    one, other, stranger = Process(ensemble), Process(ensemble), Process(ensemble, "east")
    one.directory.announce_host("one", encode_record(HostRecord("edge")))
    one.directory.announce_endpoint("one@one", encode_record(EndpointRecord("127.0.0.1:1")))
    record = MirrorsRecord(3, "one", ("other",), "edge", ("mqtt",))
    one.directory.publish_mirrors("one", encode_record(record), lambda _: True)
    settle(one, other, stranger)
    found = other.directory
    assert (found.hosts, found.endpoints, found.mirrors) == (
        {"one": HostRecord("edge")},
        {"one@one": "127.0.0.1:1"},
        {"one": record},
    )
    assert not stranger.directory.hosts
    one.service.close()
    settle(other)
    assert (other.directory.hosts, other.directory.mirrors) == ({}, {"one": record})


def test_an_announcement_of_a_former_life_is_replaced_and_of_a_lost_session_made_again() -> None:
    ensemble = InMemoryEnsemble()
    former, watcher = Process(ensemble), Process(ensemble)
    former.directory.announce_endpoint("one@one", encode_record(EndpointRecord("127.0.0.1:1")))
    settle(former, watcher)
    process = Process(ensemble)  # before the session of the former life has ended
    process.directory.announce_endpoint("one@one", encode_record(EndpointRecord("127.0.0.1:2")))
    settle(process, watcher)
    assert watcher.directory.endpoints == {"one@one": "127.0.0.1:2"}
    ensemble.expire(former.service.session)
    settle(process, watcher)
    assert watcher.directory.endpoints == {"one@one": "127.0.0.1:2"}
    process.service.cut_off()
    ensemble.expire(process.service.session)
    settle(watcher)
    assert not watcher.directory.endpoints
    process.service.reconnect()
    settle(process, watcher)
    assert watcher.directory.endpoints == {"one@one": "127.0.0.1:2"}


def test_a_primary_of_an_earlier_epoch_does_not_overwrite_what_a_later_one_has_published() -> None:
    ensemble = InMemoryEnsemble()
    early, late = Process(ensemble), Process(ensemble)

    def publish(process: Process, epoch: int, may_replace: Callable[[bytes], bool]) -> None:
        process.directory.publish_mirrors("one", encode_record(MirrorsRecord(epoch, "h", ())), may_replace)
        settle(early, late)

    publish(early, 1, lambda _: True)
    publish(late, 2, lambda _: True)
    publish(early, 1, lambda _: False)
    assert early.directory.mirrors["one"].epoch == late.directory.mirrors["one"].epoch == 2


def test_a_move_is_known_until_it_is_done_and_malformed_znodes_are_ignored() -> None:
    ensemble = InMemoryEnsemble()
    process = Process(ensemble)
    settle(process)
    operator = ensemble.connect(lambda _: None)

    def write(path: str, data: bytes) -> Request:
        return Transaction((Create(path, data),))

    operator.ask(1, write("/moves/west/one", encode_record(MoveRecord("other"))))
    operator.ask(2, write("/moves/west/two", b"\xff"))
    settle(process)
    assert process.directory.moves == {"one": "other"}
    process.directory.move_done("one")
    settle(process)
    assert process.directory.moves == {}
