// Where brokers are on the map: on the globe where they have coordinates, with their groups where they are many and have
// domains, in their tiers where they have a role, else where springs and repulsion put them.
//
// The same overlay always gets the same layout: nothing is left to chance.

import { groupsOf, placeGroups } from "./groups.js";
import { Projection } from "./projection.js";
import { hasTiers, placeTiers } from "./tiers.js";

const ROUNDS = 320;

export function layout(brokers, links) {
  const names = Object.keys(brokers);
  const placed = names.filter((name) => isPlaced(brokers[name]));
  const groups = groupsOf(brokers);
  if (!placed.length && groups) return { at: placeGroups(names, links, groups, spread), projection: null, groups };
  if (!placed.length && hasTiers(brokers)) return { at: placeTiers(brokers), projection: null, isTiered: true };
  const projection = placed.length
    ? new Projection(placed.map((name) => [brokers[name].longitude, brokers[name].latitude]))
    : null;
  const at = {};
  for (const name of placed) {
    const point = projection.at(brokers[name].longitude, brokers[name].latitude);
    if (point) at[name] = point;
  }
  const pinned = new Set(Object.keys(at));
  if (pinned.size < names.length) spread(names, links, at, pinned);
  return { at, projection: pinned.size ? projection : null, groups };
}

const isPlaced = (broker) => typeof broker.latitude === "number" && typeof broker.longitude === "number";

// Fruchterman and Reingold, with those that have a place held fast.
function spread(names, links, at, pinned) {
  const size = pinned.size > 1 ? extent([...pinned].map((name) => at[name])) : 1;
  const ideal = (pinned.size > 1 ? 0.6 : 1) * size * Math.sqrt(1 / names.length);
  const middle = pinned.size ? centre([...pinned].map((name) => at[name])) : [0, 0];
  names.forEach((name, index) => {
    if (pinned.has(name)) return;
    const angle = index * 2.399963; // the golden angle: no two start in the same direction
    const far = 0.5 * size * Math.sqrt((index + 0.5) / names.length);
    at[name] = [middle[0] + far * Math.cos(angle), middle[1] + far * Math.sin(angle)];
  });
  const numbers = new Map(names.map((name, index) => [name, index]));
  const ends = Object.values(links)
    .map((link) => link.ends.map((end) => numbers.get(end)))
    .filter(([one, other]) => one !== undefined && other !== undefined);
  const x = names.map((name) => at[name][0]);
  const y = names.map((name) => at[name][1]);
  const dx = new Float64Array(names.length);
  const dy = new Float64Array(names.length);
  for (let round = 0; round < ROUNDS; round++) {
    dx.fill(0);
    dy.fill(0);
    for (let one = 0; one < names.length; one++) {
      for (let other = one + 1; other < names.length; other++) {
        const across = x[one] - x[other];
        const down = y[one] - y[other];
        const force = (ideal * ideal) / (across * across + down * down + 1e-9);
        dx[one] += across * force;
        dy[one] += down * force;
        dx[other] -= across * force;
        dy[other] -= down * force;
      }
      dx[one] -= 0.02 * (x[one] - middle[0]);
      dy[one] -= 0.02 * (y[one] - middle[1]);
    }
    for (const [one, other] of ends) {
      const across = x[one] - x[other];
      const down = y[one] - y[other];
      const force = Math.hypot(across, down) / ideal;
      dx[one] -= across * force;
      dy[one] -= down * force;
      dx[other] += across * force;
      dy[other] += down * force;
    }
    const heat = 0.1 * size * (1 - round / ROUNDS);
    names.forEach((name, index) => {
      if (pinned.has(name)) return;
      const length = Math.hypot(dx[index], dy[index]) || 1;
      const step = Math.min(length, heat);
      x[index] += (dx[index] / length) * step;
      y[index] += (dy[index] / length) * step;
    });
  }
  names.forEach((name, index) => (at[name] = [x[index], y[index]]));
}

function extent(points) {
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  return Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys)) || 1;
}

function centre(points) {
  return [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
}
