"""Types that DDS gateways tell each other: built as they were told, or refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples

pytest.importorskip("cyclonedds")

from dds_app import Reading

from overlane.gateways.dds.types import build_type


def told() -> bytes:
    identifier, mapping = Reading.__idl__.get_type_id(), Reading.__idl__.get_type_mapping()
    objects = {
        bytes(one.type_identifier.serialize(use_version_2=True)[4:]): bytes(
            one.type_object.serialize(use_version_2=True)[4:]
        )
        for one in mapping.identifier_object_pair_complete
    }
    return msgspec.msgpack.encode((bytes(identifier.serialize(use_version_2=True)[4:]), objects))


def test_a_type_that_was_told_reads_what_the_original_wrote() -> None:
    built = build_type(told())
    read = built.deserialize(Reading(7, 20.5, "C").serialize())
    assert (read.id, read.value, read.unit) == (7, 20.5, "C")


@given(st.binary(max_size=200))
@examples(300)
def test_any_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        build_type(data)


@given(st.data())
@examples(100)
def test_a_type_that_was_changed_is_built_or_refused(data: st.DataObject) -> None:
    changed = bytearray(told())
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        build_type(bytes(changed))
    except ValueError:
        return
