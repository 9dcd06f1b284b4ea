"""The clustering baseline: advertisements with similar subscribers share a channel, found by k-means.

Every advertisement is a point, its subscriber list as zeros and ones, weighted by its rate; a node that stands for
several counts as often. The first centre is the heaviest advertisement, each next one the point with the greatest
weighted distance to the nearest centre, so nothing is random. Each cluster becomes a channel; a node joins if it wants
enough of what is sent for membership to be cheaper than unicast.
"""

import numpy as np
import numpy.typing as npt

from overlane.planning.channels.demand import Demand, Layout, Weights, empty_layout

ROUNDS_MAX = 50


def clustering(demand: Demand) -> Layout:
    """One channel per cluster of advertisements, each with the members that gain by it."""
    layout = empty_layout(demand)
    clusters = min(demand.channels, demand.wanted.shape[0])
    if clusters == 0:
        return layout
    points: Weights = demand.wanted.astype(np.float64) * np.sqrt(demand.node_count)
    cluster_of = _kmeans(points, demand.rate_bps, clusters)
    for channel in range(clusters):
        sent = cluster_of == channel
        if sent.any():
            asked_bps = demand.rate_bps[sent] @ demand.wanted[sent]
            layout.carries[channel] = sent
            layout.listens[channel] = (1 + demand.unicast_weight) * asked_bps > demand.rate_bps[sent].sum()
    return layout


def _kmeans(points: Weights, weight: Weights, clusters: int) -> npt.NDArray[np.intp]:
    """The cluster of every point: Lloyd's rounds until nothing moves."""
    centres = points[_spread_out(points, weight, clusters)]
    cluster_of = np.full(len(points), -1, dtype=np.intp)
    for _ in range(ROUNDS_MAX):
        nearest = _distances(points, centres).argmin(axis=1)
        if (nearest == cluster_of).all():
            break
        cluster_of = nearest
        for cluster in range(clusters):
            inside = cluster_of == cluster
            if inside.any():
                centres[cluster] = np.average(points[inside], axis=0, weights=weight[inside])
    return cluster_of


def _spread_out(points: Weights, weight: Weights, clusters: int) -> list[int]:
    chosen = [int(np.argmax(weight * (points**2).sum(axis=1)))]
    nearest = _distances(points, points[chosen])[:, 0]
    while len(chosen) < clusters:
        chosen.append(int(np.argmax(weight * nearest)))
        nearest = np.minimum(nearest, _distances(points, points[chosen[-1:]])[:, 0])
    return chosen


def _distances(points: Weights, centres: Weights) -> Weights:
    """Squared distances, points x centres."""
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)[None, :]
    distances: Weights = np.maximum(squares - 2 * points @ centres.T, 0.0)
    return distances
