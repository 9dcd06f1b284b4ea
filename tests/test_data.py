"""The networks and measurements kept with the project, and the scripts that made them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from overlane.network import Broker, Link, Network, parse_network, read_network

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def run_script(name: str, *args: Path) -> str:
    command = [sys.executable, str(ROOT / "scripts" / name), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("name", "brokers", "links"), [("abilene", 11, 14), ("geant", 37, 58), ("internode", 20, 31)])
def test_a_real_network_is_one_piece_at_the_speed_of_light(name: str, brokers: int, links: int) -> None:
    network = read_network(EXAMPLES / "networks" / f"{name}.toml")
    assert (len(network.brokers), len(network.links)) == (brokers, links)
    assert all(100_000 <= link.latency_ns < 100_000_000 for link in network.links)
    reached = {network.brokers[0].name}
    for _ in network.brokers:
        reached |= {end for link in network.links if reached & set(link.ends) for end in link.ends}
    assert reached == {broker.name for broker in network.brokers}


def test_the_measured_history_is_complete() -> None:
    with np.load(EXAMPLES / "data" / "seattle-rtt-12.npz") as data:
        rtt_s, nodes = data["rtt"], data["nodes"]
    assert rtt_s.shape == (688, 12, 12)
    assert rtt_s.dtype == np.float32
    assert len(set(nodes.tolist())) == 12
    assert np.array_equal(rtt_s > 0, np.broadcast_to(~np.eye(12, dtype=bool), rtt_s.shape))


GML = """graph [
  label "Tiny"
  node [ id 0 label "São Paulo" Longitude 0.0 Latitude 0.0 ]
  node [ id 1 label "Twin" Longitude 1.0 Latitude 0.0 ]
  node [ id 2 label "Twin" Longitude 1.0 Latitude 0.0 ]
  node [ id 3 label "Nowhere" ]
  node [ id 4 label "Behind Nowhere" Longitude 9.0 Latitude 9.0 ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 0 ]
  edge [ source 1 target 1 ]
  edge [ source 1 target 2 ]
  edge [ source 0 target 3 ]
  edge [ source 3 target 4 ]
]
"""


def test_a_map_becomes_a_network_and_says_what_was_left_out(tmp_path: Path) -> None:
    gml = tmp_path / "tiny.gml"
    gml.write_text(GML, encoding="utf-8")
    text = run_script("import_topology.py", gml)
    assert parse_network(text) == Network(
        brokers=(
            Broker(name="sao-paulo", latitude=0.0, longitude=0.0),
            Broker(name="twin-1", latitude=0.0, longitude=1.0),
            Broker(name="twin-2", latitude=0.0, longitude=1.0),
        ),
        links=(
            Link(ends=("sao-paulo", "twin-1"), latency_ns=556_000),  # one degree of the equator, 111.2 km
            Link(ends=("twin-1", "twin-2"), latency_ns=100_000),
        ),
    )
    assert [line for line in text.splitlines() if line.startswith(("# Left", "# Parallel"))] == [
        "# Left out for want of coordinates (1): Nowhere.",
        "# Left out because then not joined to the rest (1): Behind Nowhere.",
        "# Parallel links merged: 1.",
    ]


def test_the_best_measured_nodes_are_cut_out(tmp_path: Path) -> None:
    rtt_s = np.full((5, 15, 15), 0.1, dtype=np.float32)
    rtt_s[2, 3, :] = 0  # was away once
    rtt_s[:, 7, :] = 0.4  # slow to answer
    rtt_s[:, :, 11] = 0.3
    np.savez(tmp_path / "all.npz", rtt=rtt_s)
    run_script("cut_rtt.py", tmp_path / "all.npz", tmp_path / "cut.npz")
    with np.load(tmp_path / "cut.npz") as cut:
        assert cut["nodes"].tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14]
        assert cut["rtt"].shape == (5, 12, 12)
