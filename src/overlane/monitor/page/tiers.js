// The two tiers of a coordinated overlay: edges by domain, and the routing brokers between them.

import { colours } from "./palette.js";

const ROOM = 1; // from one broker of a group to the next
const BESIDE = 68; // pixels around the brokers of a group, with their names
const ABOVE = 62;

export const hasTiers = (brokers) => Object.values(brokers).some((one) => one.role === "routing");

// Where each broker is: routing brokers in a column in the middle, the domains around it, each in a column of its own
// on the left or on the right.
export function placeTiers(brokers) {
  const names = Object.keys(brokers).sort();
  const routing = names.filter((name) => brokers[name].role === "routing");
  const domains = new Map();
  for (const name of names) {
    if (brokers[name].role === "routing") continue;
    const domain = brokers[name].domain || "";
    if (!domains.has(domain)) domains.set(domain, []);
    domains.get(domain).push(name);
  }
  const at = {};
  const sides = [[], []];
  const heights = [0, 0];
  // The largest first, each on the side that has more room.
  for (const group of [...domains.values()].sort((one, other) => other.length - one.length)) {
    const side = heights[0] <= heights[1] ? 0 : 1;
    sides[side].push(group);
    heights[side] += group.length + 1;
  }
  const far = Math.max(2.2, 0.6 * Math.max(...heights, routing.length));
  sides.forEach((groups, side) => {
    let y = -(heights[side] - 1) / 2;
    for (const group of groups) {
      for (const name of group) {
        at[name] = [(side ? 1 : -1) * far, (y + 0.5) * ROOM];
        y += 1;
      }
      y += 1;
    }
  });
  const step = Math.max(ROOM, (Math.max(...heights) - 1) / Math.max(1, routing.length));
  routing.forEach((name, index) => (at[name] = [0, (index - (routing.length - 1) / 2) * step]));
  return at;
}

// The domains as boxes around their edges, with their names; the tier between them.
export function drawTiers(pen, brokers, points, font) {
  const groups = new Map();
  for (const [name, broker] of Object.entries(brokers)) {
    if (!broker.role || !points[name]) continue;
    const title = broker.role === "routing" ? "routing brokers" : `domain ${broker.domain}`;
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(points[name]);
  }
  drawBoxes(pen, groups, font, BESIDE, ABOVE);
}

// Boxes with titles around points.
export function drawBoxes(pen, groups, font, beside, above) {
  for (const [title, found] of groups) {
    const xs = found.map(([x]) => x);
    const ys = found.map(([, y]) => y);
    const [left, top] = [Math.min(...xs) - beside, Math.min(...ys) - above];
    const width = Math.max(...xs) - left + beside;
    const height = Math.max(...ys) - top + above;
    pen.fillStyle = colours["--land"];
    pen.strokeStyle = colours["--shore"];
    pen.lineWidth = 1.5;
    pen.setLineDash(title === "routing brokers" ? [6, 4] : []);
    pen.beginPath();
    pen.roundRect(left, top, width, height, 14);
    pen.fill();
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = colours["--soft"];
    pen.font = `600 12px ${font}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(title, left + width / 2, top - 11);
  }
}

// A ring around the leader, beside the word.
export function drawLeader(pen, [x, y], size) {
  pen.strokeStyle = colours["--accent"];
  pen.lineWidth = 2.5;
  pen.beginPath();
  pen.roundRect(x - size - 5, y - size - 5, 2 * size + 10, 2 * size + 10, 4);
  pen.stroke();
}

// What a broker is in its tier, in words.
export function tierWords(broker) {
  const words = [];
  if (broker.is_leader) words.push("leader");
  if (broker.role === "routing") words.push(`${broker.bundles ?? 0} bundles`);
  return words.join(" · ");
}
