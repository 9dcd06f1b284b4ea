"""A store that an earlier release wrote opens in this one: nothing in it is lost, and what was half done is finished.

Each file of `stores/` was written by the brokers of a release, by `earlierstore.py`.
"""

import tarfile
from pathlib import Path

import pytest
from earlierstore import LINK, TOPICS, check, fill

from overlays import RealOverlay

pytestmark = pytest.mark.slow

STORES = sorted((Path(__file__).parent / "stores").glob("*.tar.xz"))


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_store_of_an_earlier_release_is_read(store: Path, tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, LINK, TOPICS)
    with tarfile.open(store) as archive:
        archive.extractall(tmp_path)  # of our own; Python 3.11.3 and older know no filters
    try:
        net.start()
        check(net)
    finally:
        net.end()


def test_a_store_of_this_release_is_read(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, LINK, TOPICS)
    try:
        net.start()
        fill(net)
        net["a"].stop()
        net["a"].log.unlink()
        net["b"].log.unlink()
        net.start()
        check(net)
    finally:
        net.end()


def test_there_are_stores_of_earlier_releases() -> None:
    assert STORES
