// Alerts: what is wrong now, the worst first. Links of a lost broker are part of its alert, and not listed beside it; of
// many topics, links, brokers or routes with the same trouble the worst are listed, and the others counted.

import { isKnown, ms, percent, share } from "./format.js";
import { latency } from "./past.js";

const WEIGHTS = ["bad", "warning"];
const EACH_MAX = 10;
const KINDS = { broker: "brokers", link: "links", deadline: "topics", route: "routes" };
const FULL = 0.5; // of a queue
const LOSSY = 0.05;
const FAR_BELOW = 0.99; // in time: below it is bad, below the target is a warning

let latest = { picture: null, atS: null, alerts: [] };

// [{ key, kind, weight, text, more, sinceS, select, topic }], once for each picture.
export function alertsOf(past, picture, atS) {
  if (latest.picture !== picture || latest.atS !== atS) latest = { picture, atS, alerts: found(past, picture, atS) };
  return latest.alerts;
}

function found(past, picture, atS) {
  const since = lastChanges(past, atS);
  const all = [
    ...brokerAlerts(picture),
    ...linkAlerts(picture, past.usualMs),
    ...topicAlerts(picture, past.head.target),
    ...routeAlerts(picture),
  ];
  for (const alert of all) alert.sinceS = since.get(alert.key) ?? null;
  const sorted = all.sort(
    (one, other) => WEIGHTS.indexOf(one.weight) - WEIGHTS.indexOf(other.weight) || (other.rank ?? 0) - (one.rank ?? 0),
  );
  return limited(sorted);
}

export const countOf = (alerts) => alerts.reduce((total, one) => total + (one.count ?? 1), 0);

function limited(alerts) {
  const seen = new Map(); // how many there are of each kind and weight, and the alert that counts the rest
  const found = [];
  for (const alert of alerts) {
    const { kind, weight } = alert;
    const key = `more ${kind} ${weight}`;
    if (!seen.has(key)) seen.set(key, { listed: 0, rest: null });
    const of = seen.get(key);
    if (of.listed < EACH_MAX) {
      of.listed += 1;
      found.push(alert);
      continue;
    }
    if (!of.rest) {
      of.rest = { key, kind, weight, count: 0, more: "", sinceS: null };
      found.push(of.rest);
    }
    of.rest.count += 1;
    of.rest.text = `${of.rest.count} more ${KINDS[kind]}`;
  }
  return found;
}

// When the timeline last told of each link and broker.
function lastChanges(past, atS) {
  const found = new Map();
  for (const { kind, link, brokers, at_s } of past.happenings) {
    if (at_s > atS) continue;
    if (kind === "link") found.set(`link ${link}`, at_s);
    else if (kind === "broker") found.set(`broker ${brokers?.[0]}`, at_s);
  }
  return found;
}

function* brokerAlerts({ brokers, links }) {
  const linked = new Map();
  for (const { ends } of Object.values(links)) for (const end of ends) linked.set(end, (linked.get(end) ?? 0) + 1);
  for (const [name, broker] of Object.entries(brokers)) {
    const alert = { key: `broker ${name}`, kind: "broker", select: { broker: name } };
    const count = linked.get(name) ?? 0;
    const more = [broker.why, `${count} ${count === 1 ? "link" : "links"}`].filter(Boolean).join(" · ");
    if (broker.state === "lost") yield { ...alert, weight: "bad", text: `${name} is lost`, more, rank: 4 };
    else if (broker.state === "unknown") yield { ...alert, weight: "warning", text: `${name} has not answered yet`, more };
    else if (broker.state === "draining") yield { ...alert, weight: "warning", text: `${name} shuts down`, more: "" };
    for (const { gateway, state, to, why } of broker.gateways ?? []) {
      if (state === "up") continue;
      const text = `gateway ${gateway} of ${name} has no connection to ${to}`;
      yield { ...alert, key: `gateway ${name} ${gateway}`, weight: "warning", text, more: why ?? "" };
    }
    const mirrors = broker.copies?.mirrors ?? [];
    if (broker.copies && !mirrors.some((one) => one.in_sync)) {
      const text = `${name} has no copy in sync`;
      yield { ...alert, key: `copies ${name}`, weight: "warning", text, more: `${mirrors.length} mirrors` };
    }
  }
}

function* linkAlerts({ brokers, links }, usualMs) {
  for (const [name, link] of Object.entries(links)) {
    if (link.ends.some((end) => brokers[end]?.state === "lost")) continue;
    const alert = { key: `link ${name}`, kind: "link", select: { link: name }, more: "" };
    const called = link.ends.join(" – ");
    const most = (value) => Math.max(...link.ways.map(value));
    if (link.state === "failed" || link.state === "down") {
      yield { ...alert, weight: "bad", text: `${called} has failed`, rank: 2 };
      continue;
    }
    if (link.state === "suspect") yield { ...alert, weight: "warning", text: `${called} is suspected`, rank: 1 };
    const takes = latency(link);
    const usual = usualMs[name] ?? takes;
    const words = [];
    if (takes !== null && takes > 1.5 * usual + 5) words.push(`slow: ${ms(takes)}, usually ${ms(usual)}`);
    const loss = most((way) => way.loss ?? 0);
    if (loss >= LOSSY) words.push(`loses ${percent(loss)}`);
    const full = most((way) => (way.queue_bytes ?? 0) / (way.queue_bytes_max || Infinity));
    if (full >= FULL) words.push(`queue ${percent(full)} full`);
    if (words.length && link.state === "up") {
      yield { ...alert, weight: "warning", text: `${called} is degraded`, more: words.join(" · ") };
    }
  }
}

// Of thousands, words are made for those alone that are listed: the worst of each weight.
function* topicAlerts({ topics }, target) {
  const below = [];
  for (const name in topics) {
    const missed = isKnown(topics[name].deadline_ms) ? shortfall(topics[name]) : 0;
    if (missed > 1 - target) below.push({ name, missed });
  }
  below.sort((one, other) => other.missed - one.missed);
  const listed = { bad: 0, warning: 0 };
  for (const { name, missed } of below) {
    const weight = missed > 1 - FAR_BELOW ? "bad" : "warning";
    const alert = { key: `topic ${name}`, kind: "deadline", weight, rank: 3 + missed, topic: name };
    listed[weight] += 1;
    yield listed[weight] > EACH_MAX ? alert : { ...alert, ...topicWords(name, topics[name]) };
  }
}

function topicWords(name, { deadline_ms, lately }) {
  const { in_time = 0, delivered = 0, lost = 0 } = lately;
  return {
    text: `${name}: ${share(in_time, delivered + lost)} within ${ms(deadline_ms)}`,
    more: lost ? `${lost} lost in the last 10 seconds` : `p99 ${ms(lately.p99_ms)}`,
  };
}

// The share of recent messages that was late or lost.
export function shortfall({ lately = {} }) {
  const due = (lately.delivered ?? 0) + (lately.lost ?? 0);
  return due ? 1 - (lately.in_time ?? 0) / due : 0;
}

function* routeAlerts({ routes }) {
  for (const [name, route] of Object.entries(routes)) {
    const alert = { key: `route ${name}`, kind: "route", topic: route.filters?.[0], select: { broker: route.source } };
    const called = (route.filters ?? []).slice(0, 2).join(", ") || "messages";
    const cut = route.destinations.filter((to) => !route.paths?.[to]?.length);
    if (cut.length) {
      const text = `${called} from ${route.source} cannot reach ${cut.slice(0, 3).join(", ")}`;
      yield { ...alert, weight: "bad", text, more: cut.length > 3 ? `and ${cut.length - 3} more` : "", rank: 2 };
    }
    for (const [to, why] of Object.entries(route.unmet ?? {})) {
      const text = `${called} from ${route.source} to ${to}`;
      yield { ...alert, key: `${alert.key} ${to}`, weight: "warning", text, more: why };
    }
  }
}
