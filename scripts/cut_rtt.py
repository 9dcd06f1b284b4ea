"""Cuts the round-trip times of a few well-measured nodes out of a large measurement.

    scripts/cut_rtt.py seattle-rtt.npz examples/data/seattle-rtt-12.npz

Nodes are dropped one by one until 12 are left: each time one whose pairs with the others were measured in the fewest
time slices, and of those the one whose two directions disagree most, since a round trip takes as long from either end
and a difference tells of an overloaded node rather than of the network. What is left is measured in every slice.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NODES_KEPT = 12


def choose(rtt_s: NDArray[np.float32]) -> list[int]:
    """The nodes to keep of an array (slice, from, to) in seconds, where 0 is no measurement."""
    measured = rtt_s > 0
    cover = measured.mean(axis=0)
    cover = np.minimum(cover, cover.T)
    np.fill_diagonal(cover, 0.0)
    typical = np.full(cover.shape, np.nan)
    for pair in zip(*np.nonzero(cover), strict=True):
        typical[pair] = np.median(rtt_s[:, *pair][measured[:, *pair]])
    disagreement = np.nan_to_num(np.abs(typical - typical.T) / np.minimum(typical, typical.T))
    keep = list(range(len(cover)))
    while len(keep) > NODES_KEPT:
        among = np.ix_(keep, keep)
        worst = np.lexsort((-disagreement[among].sum(axis=1), cover[among].sum(axis=1).round(6)))[0]
        del keep[int(worst)]
    return keep


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut a few well-measured nodes out of a round-trip measurement.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    rtt_s = np.load(args.source)["rtt"]
    nodes = choose(rtt_s)
    cut = rtt_s[:, nodes][:, :, nodes].astype(np.float32)
    cut[:, range(NODES_KEPT), range(NODES_KEPT)] = 0
    np.savez_compressed(args.target, rtt=cut, nodes=np.array(nodes, dtype=np.int32))
    pairs = cut[:, ~np.eye(NODES_KEPT, dtype=bool)]
    print(
        f"nodes {nodes}: {(pairs > 0).mean():.2%} of all pairs and slices measured, {args.target.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
