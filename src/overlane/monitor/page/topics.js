// The topics: what each asks for, what it gets, and, of the chosen one, from where to where it goes and on which ways.

import { shortfall } from "./alerts.js";
import { count, hertz, isKnown, ms, share, span } from "./format.js";
import { drawChart } from "./chart.js";
import { element, put, putRows } from "./dom.js";
import { DASHES, routesOf, waysOf } from "./paths.js";
import { pathSign } from "./signs.js";

const LOST_TITLE = "overdue messages; reliable ones are retransmitted until delivered";
const ROUTES_SHOWN = 20;
const SHOWN_MAX = 8;

const cardWords = new WeakMap(); // a topic as it was -> what its card shows

// The names of those that are shown, in their order. `wanted`: part of a name, or a topic that the filter matches.
export function showTopics(place, { past, picture, atS, chosen, choose, wanted, order }) {
  const all = Object.keys(picture.topics);
  if (!all.length) {
    put(place, element("p", { className: "empty" }, "The network file names no topics, and nothing was published."));
    return all;
  }
  const found = wanted ? wantedOf(all, wanted) : all;
  const names = firstOf(found, picture.topics, order);
  // What is chosen stays in sight.
  if (chosen in picture.topics && !names.includes(chosen)) names.unshift(chosen);
  const rows = names.map((name) => ({ key: `card ${name}`, words: wordsOf(name), make: () => card(name) }));
  const more = found.length - SHOWN_MAX;
  const words = !found.length ? `No topic has “${wanted}” in its name.` : more > 0 ? `and ${more} more: find them by name` : "";
  const sparks = [];
  putRows(place, [], rows, words ? element("p", { className: "empty" }, words) : null);
  for (const spark of sparks) spark();
  return names;

  // A card stays as it is while nothing in it changes. That of the chosen topic has its routes too.
  function wordsOf(name) {
    const topic = picture.topics[name];
    if (name === chosen) return { is: "made anew" };
    const { theme } = document.documentElement.dataset;
    const before = cardWords.get(topic);
    if (before?.atS === atS && before.past === past && before.theme === theme) return before;
    const fresh = { atS, past, theme };
    cardWords.set(topic, fresh);
    return fresh;
  }

  function card(name) {
    const topic = picture.topics[name];
    const isChosen = name === chosen;
    const title = `latency of the last ${span(past.chartS)}: p99 solid, p50 dashed, deadline horizontal`;
    const spark = element("canvas", { className: "spark", title });
    sparks.push(() => drawSpark(spark, past, name, atS));
    return element(
      "article",
      { className: isChosen ? "topic chosen" : "topic", data: { topic: name, key: `card ${name}` } },
      element(
        "button",
        {
          ariaPressed: String(isChosen),
          data: { key: `topic ${name}` },
          on: { click: () => choose(isChosen ? null : name) },
        },
        element("span", { className: "name" }, name),
        shareOf(topic),
        element("span", { className: "asked" }, asked(topic)),
        verdict(topic, past.head.target),
        spark,
      ),
      figures(topic),
      isChosen ? routes(picture, name) : null,
    );
  }
}

// Those of the highest rank, in their order, without putting all 10,000 in order; of equal ones the first.
function best(names, rankOf, most) {
  const found = [];
  const ranks = [];
  for (const name of names) {
    const rank = rankOf(name);
    if (found.length === most && !(rank > ranks[most - 1])) continue;
    let place = found.length;
    while (place && rank > ranks[place - 1]) place -= 1;
    found.splice(place, 0, name);
    ranks.splice(place, 0, rank);
    found.length = ranks.length = Math.min(found.length, most);
  }
  return found;
}

function firstOf(names, topics, order) {
  const ranks = {
    worst: (name) => 1e9 * shortfall(topics[name]) + (topics[name].rate_hz ?? 0),
    rate: (name) => topics[name].rate_hz ?? 0,
  };
  if (ranks[order]) return best(names, ranks[order], SHOWN_MAX);
  if (order !== "name") return names.slice(0, SHOWN_MAX); // as in the file
  let last = null; // those behind it are passed over
  const found = [];
  for (const name of names) {
    if (found.length === SHOWN_MAX && name >= last) continue;
    found.push(name);
    found.sort().splice(SHOWN_MAX);
    last = found.at(-1);
  }
  return found;
}

function wantedOf(names, wanted) {
  const part = wanted.toLowerCase();
  const topic = wanted.split("/");
  const isPattern = (name) => name.includes("+") || name.includes("#");
  return names.filter((name) => name.toLowerCase().includes(part) || (isPattern(name) && isMatch(name.split("/"), topic)));
}

// Whether a filter, in parts, matches a topic.
function isMatch(filter, topic) {
  for (let at = 0; at < filter.length; at++) {
    if (filter[at] === "#") return true;
    if (at >= topic.length || (filter[at] !== "+" && filter[at] !== topic[at])) return false;
  }
  return filter.length === topic.length;
}

function asked(topic) {
  const words = [isKnown(topic.deadline_ms) ? `within ${ms(topic.deadline_ms)}` : "no deadline"];
  words.push(topic.reliable ? "reliable" : "best effort", topic.routing);
  return words.filter(Boolean).join(" · ");
}

const lately = (topic) => topic.lately ?? {};
const total = (topic) => topic.total ?? {};

function shareOf(topic) {
  const { in_time: inTime = 0, delivered = 0, lost = 0 } = lately(topic);
  const title = "delivered in time, last 10 seconds";
  return element("span", { className: "share", title }, share(inTime, delivered + lost));
}

// Against the target, in a word and a sign, not by colour alone.
function verdict(topic, target) {
  const { in_time: inTime = 0, delivered = 0, lost = 0 } = lately(topic);
  const wanted = `of ${(100 * target).toFixed(2)} %`;
  if (!(delivered + lost)) return element("span", { className: "target" }, "nothing came lately");
  const isMet = inTime / (delivered + lost) >= target;
  const words = `${isMet ? "✓" : "✗"} in time, ${wanted}`;
  return element("span", { className: isMet ? "target met" : "target missed" }, words);
}

function figures(topic) {
  const now = lately(topic);
  const all = total(topic);
  const late = (all.delivered ?? 0) - (all.in_time ?? 0);
  const row = (name, value, title, className = "") =>
    element("div", { title }, element("dt", {}, name), element("dd", { className }, value));
  return element(
    "dl",
    { className: "figures" },
    row("rate", hertz(topic.rate_hz ?? 0), "messages published per second"),
    row("p50", ms(now.p50_ms), "median latency, last 10 seconds"),
    row("p99", ms(now.p99_ms), "99 of 100 messages were no older, in the last 10 seconds"),
    row("delivered", count(all.delivered ?? 0), "total; a message counts once per delivering broker"),
    row("late", count(late), "altogether", late ? "warning" : ""),
    row("lost", count(all.lost ?? 0), LOST_TITLE, all.lost ? "bad" : ""),
  );
}

function drawSpark(canvas, past, name, atS) {
  const untilS = Math.max(atS, past.firstS + 1);
  const fromS = Math.max(past.firstS, untilS - past.chartS);
  const series = (valueOf) => past.series("topics", name, (topic) => valueOf(lately(topic)) ?? null, fromS, untilS);
  const lines = [
    { points: series((figures) => figures.p99_ms), colour: "--path-0", fill: true },
    { points: series((figures) => figures.p50_ms), colour: "--path-1", dash: [3, 3] },
  ];
  drawChart(canvas, { lines, fromS, untilS, bound: past.latest.picture.topics[name]?.deadline_ms ?? null });
}

function routes(picture, name) {
  const found = routesOf(picture, name);
  if (!found.length) {
    const words = "No messages between brokers now: no remote subscriber or no publisher.";
    return element("div", { className: "routes" }, element("p", { className: "empty" }, words));
  }
  const more = found.length - ROUTES_SHOWN;
  return element(
    "div",
    { className: "routes" },
    ...found.slice(0, ROUTES_SHOWN).map((route) => describe(picture, route)),
    more > 0 ? element("p", { className: "empty" }, `and ${more} more routes`) : null,
  );
}

function describe(picture, route) {
  const ways = waysOf(picture, route);
  const why = [route.topics?.slice(0, 4).join(", "), route.cause && `because: ${route.cause}`];
  const lines = (way) => way.paths.map((path) => line(way, path, ways.length > 1));
  return element(
    "div",
    { className: "route", data: { source: route.source } },
    element("h3", {}, `${route.source} → ${route.destinations.join(", ")}`),
    element("p", { className: "why" }, why.filter(Boolean).join(" · ")),
    ...ways.flatMap((way) => (way.paths.length ? lines(way) : [unreachable(way)])),
  );
}

function line(way, { path, rank, takesMs }, isNamed) {
  const kind = rank ? `redundant, copy ${rank + 1}` : "primary";
  return element(
    "div",
    { className: "way", data: { path: path.join("|"), rank } },
    pathSign(rank, DASHES[rank]),
    element(
      "span",
      {},
      path.join(" → "),
      element("span", { className: "kind" }, isNamed ? `${kind} to ${way.to}` : kind),
    ),
    element("span", { className: "takes" }, ms(takesMs)),
  );
}

function unreachable(way) {
  const bad = (words) => element("span", { className: "bad" }, words);
  return element("div", { className: "way" }, bad("✗"), bad(`no way to ${way.to}`));
}
