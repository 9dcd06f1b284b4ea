// Groups of brokers, for overlays of many: each domain, and the tier of routing brokers.
//
// A group is one mark on the map while its brokers would be too near to each other to be told apart, with one line for
// all links between two groups. Zooming in shows its brokers; so does choosing one of them.

const GROUPED_FROM = 40; // brokers
const APART_PX = 30; // between the brokers of a group, at least, or they are one mark
const ROUTING = "routing brokers";
const PREFIX = "group:"; // no name of a broker has a colon
const WORST_FIRST = ["failed", "down", "suspect", "unknown", "up"];

export const isGroup = (name) => name.startsWith(PREFIX);

// Key -> { title, names }; null where brokers are few, or have no domains.
export function groupsOf(brokers) {
  const names = Object.keys(brokers);
  if (names.length < GROUPED_FROM) return null;
  const groups = new Map();
  for (const name of names.sort()) {
    const { role, domain } = brokers[name];
    const title = role === "routing" ? ROUTING : domain ? `domain ${domain}` : "";
    if (!title) continue;
    const key = PREFIX + title;
    if (!groups.has(key)) groups.set(key, { title, names: [] });
    groups.get(key).names.push(name);
  }
  for (const [key, group] of groups) if (group.names.length < 2) groups.delete(key);
  return groups.size > 1 ? groups : null;
}

// Where the brokers of groups are: groups by their links with each other, brokers in a disc around the middle of theirs.
export function placeGroups(names, links, groups, spread) {
  const seats = seatsOf(groups, groups.keys());
  const nodes = [...new Set(names.map((name) => seats.get(name) ?? name))];
  const between = new Map();
  for (const { ends } of Object.values(links)) {
    const [one, other] = ends.map((end) => seats.get(end) ?? end);
    if (one !== other) between.set([one, other].sort().join("|"), { ends: [one, other] });
  }
  const middles = {};
  spread(nodes, Object.fromEntries(between), middles, new Set());
  const room = 0.42 * nearest(nodes.map((node) => middles[node]));
  const most = Math.max(...[...groups.values()].map((group) => group.names.length));
  const at = {};
  for (const node of nodes) {
    const members = groups.get(node)?.names ?? [node];
    const radius = room * Math.sqrt(members.length / most);
    members.forEach((name, index) => {
      const angle = index * 2.399963; // the golden angle fills a disc evenly
      const far = members.length > 1 ? radius * Math.sqrt((index + 0.5) / members.length) : 0;
      at[name] = [middles[node][0] + far * Math.cos(angle), middles[node][1] + far * Math.sin(angle)];
    });
  }
  return at;
}

// The part of the plane that some brokers take: left, top, right, bottom.
export function boxOf(names, at) {
  const points = names.map((name) => at[name]).filter(Boolean);
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

// The groups that are one mark now: those whose brokers are near to each other, and those out of sight, so that links
// with them are one line. That of a broker that is looked at never is.
export function collapsedOf(groups, boxes, { toScreen, width, height }, shownBroker) {
  const found = [];
  for (const [key, { names }] of groups) {
    if (names.includes(shownBroker)) continue;
    const [left, top, right, bottom] = boxes.get(key);
    const [[x1, y1], [x2, y2]] = [toScreen([left, top]), toScreen([right, bottom])];
    const isInSight = x2 > 0 && x1 < width && y2 > 0 && y1 < height;
    if (!isInSight || Math.sqrt(((x2 - x1) * (y2 - y1)) / names.length) < APART_PX) found.push(key);
  }
  return found;
}

// The picture with groups as brokers, and the links between two groups as one.
export function grouped(picture, groups, collapsed) {
  const seats = seatsOf(groups, collapsed);
  const brokers = {};
  for (const [name, broker] of Object.entries(picture.brokers)) if (!seats.has(name)) brokers[name] = broker;
  for (const key of collapsed) brokers[key] = summary(groups.get(key), picture.brokers);
  const links = {};
  const bundles = new Map();
  for (const [name, link] of Object.entries(picture.links)) {
    const [one, other] = link.ends.map((end) => seats.get(end) ?? end);
    if (one === other) continue;
    if (one === link.ends[0] && other === link.ends[1]) {
      links[name] = link;
      continue;
    }
    const ends = one < other ? [one, other] : [other, one];
    const key = ends.join("|");
    if (!bundles.has(key)) bundles.set(key, { ends, members: [] });
    bundles.get(key).members.push(ends[0] === one ? link.ways : [link.ways[1], link.ways[0]]);
    (bundles.get(key).states ??= []).push(link.state);
  }
  for (const [key, bundle] of bundles) links[key] = bundled(bundle);
  return { ...picture, brokers, links, seats };
}

// The hops of a topic between groups.
export function groupedHops(hops, seats) {
  const found = new Map();
  for (const hop of hops) {
    const [from, to] = [seats.get(hop.from) ?? hop.from, seats.get(hop.to) ?? hop.to];
    if (from !== to) found.set(`${from}|${to}|${hop.rank}`, { ...hop, from, to });
  }
  return [...found.values()];
}

function seatsOf(groups, keys) {
  const seats = new Map();
  for (const key of keys) for (const name of groups.get(key).names) seats.set(name, key);
  return seats;
}

function summary({ title, names }, brokers) {
  const found = names.map((name) => brokers[name]).filter(Boolean);
  const sum = (field) => found.reduce((total, one) => total + (one[field] ?? 0), 0);
  const serving = found.filter((one) => one.state === "serving").length;
  const lost = found.filter((one) => one.state === "lost").length;
  const state = serving === found.length ? "serving" : lost === found.length ? "lost" : "draining";
  return { state, title, count: found.length, lost, in_hz: sum("in_hz"), out_hz: sum("out_hz") };
}

function bundled({ ends, members, states }) {
  const worst = WORST_FIRST.find((state) => states.includes(state));
  const bad = states.filter((state) => state !== "up").length;
  const state = bad === 0 || bad === states.length ? worst : "suspect";
  const way = (index) => ({
    rate_bps: members.reduce((total, ways) => total + (ways[index].rate_bps ?? 0), 0),
    reserved: Math.max(...members.map((ways) => ways[index].reserved ?? 0)),
  });
  return { ends, state, ways: [way(0), way(1)], bundle: { count: states.length, bad } };
}

// The distance between the two points that are nearest to each other.
function nearest(points) {
  let found = Infinity;
  points.forEach(([x, y], index) => {
    for (const [ox, oy] of points.slice(index + 1)) found = Math.min(found, Math.hypot(x - ox, y - oy));
  });
  return Number.isFinite(found) ? found : 1;
}
