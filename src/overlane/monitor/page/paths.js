// The ways of a topic now: each route of it, each destination, each path, the quickest first. The first path to a
// destination is the primary one; the others are redundant: copies of each message take them at the same time.

import { isKnown } from "./format.js";

export const DASHES = [[], [11, 6], [3, 5], [14, 5, 3, 5]];
export const RANKS_MAX = DASHES.length;

export function routesOf(picture, chosen) {
  return Object.entries(picture.routes)
    .filter(([, route]) => (route.filters ?? []).includes(chosen))
    .map(([name, route]) => ({ name, ...route }));
}

export function waysOf(picture, route) {
  return route.destinations.map((to) => ({
    to,
    takesMs: route.latency_ms?.[to] ?? null,
    paths: (route.paths?.[to] ?? [])
      .map((path) => ({ path, takesMs: latencyOf(picture, path) }))
      .sort((one, other) => (one.takesMs ?? Infinity) - (other.takesMs ?? Infinity))
      .map((found, rank) => ({ ...found, rank: Math.min(rank, RANKS_MAX - 1) })),
  }));
}

// Hops with the ranks of the paths that take them, for drawing: { from, to, rank }, each once.
export function hopsOf(picture, routes) {
  const hops = new Map();
  for (const route of routes) {
    for (const way of waysOf(picture, route)) {
      for (const { path, rank } of way.paths) {
        for (let at = 0; at + 1 < path.length; at++) {
          const key = `${path[at]}|${path[at + 1]}|${rank}`;
          hops.set(key, { from: path[at], to: path[at + 1], rank });
        }
      }
    }
  }
  return [...hops.values()];
}

// By what the links on it measure now.
export function latencyOf(picture, path) {
  let total = 0;
  for (let at = 0; at + 1 < path.length; at++) {
    const [one, other] = [path[at], path[at + 1]].sort();
    const link = picture.links[`${one}|${other}`];
    const way = link?.ways[path[at] === link.ends[0] ? 0 : 1];
    if (!isKnown(way?.latency_ms)) return null;
    total += way.latency_ms;
  }
  return total;
}
