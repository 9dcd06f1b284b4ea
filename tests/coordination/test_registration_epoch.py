"""The name of a broker with copies on several hosts: the later epoch of its replica set has it."""

from dataclasses import dataclass, field

import msgspec

from overlane.coordination.contract import Create, Delete, Operation, Replace, Znode
from overlane.coordination.records import BrokerRecord, decode_registration, encode
from overlane.coordination.registration import Registration, Taken


@dataclass
class Names:
    """The znodes of one name."""

    found: dict[str, Znode] = field(default_factory=dict)

    def apply(self, operations: tuple[Operation, ...], session: int) -> None:
        for operation in operations:
            match operation:
                case Create(path, data, is_ephemeral):
                    self.found[path] = Znode(data, 0, 1, session if is_ephemeral else 0)
                case Replace(path, data, _):
                    self.found[path] = Znode(data, self.found[path].version + 1, 1, self.found[path].owner)
                case Delete(path, _):
                    del self.found[path]
                case _:
                    raise AssertionError(operation)


def registration(epoch: int, instance: int = 7) -> Registration:
    return Registration("west-1", BrokerRecord("west", "edge", instance, epoch=epoch, host="west-2"))


def register(names: Names, epoch: int, session: int, instance: int = 7) -> bool:
    match registration(epoch, instance).due(names.found, session):
        case Taken():
            return False
        case operations:
            names.apply(operations, session)
            return True


def registered_epoch(names: Names) -> int:
    path = registration(0).path
    return decode_registration(path, names.found[path].data).epoch


def test_a_later_epoch_takes_the_name_while_the_session_of_the_dead_one_lives_on() -> None:
    names = Names()
    assert register(names, 2, session=1)
    assert register(names, 3, session=2)
    assert registered_epoch(names) == 3


def test_a_primary_that_was_replaced_does_not_get_the_name_back() -> None:
    names = Names()
    assert register(names, 3, session=2)
    assert not register(names, 2, session=3)
    assert registered_epoch(names) == 3


def test_another_broker_of_the_same_name_does_not_get_it_by_its_epoch() -> None:
    names = Names()
    assert register(names, 2, session=1)
    assert not register(names, 9, session=2, instance=8)


def test_a_registration_of_an_earlier_release_has_no_epoch() -> None:
    data = msgspec.json.encode({"domain": "west", "role": "edge", "instance": 7})
    record = decode_registration(registration(0).path, data)
    assert (record.epoch, record.host) == (0, "")
    assert decode_registration(registration(0).path, encode(record)) == record
