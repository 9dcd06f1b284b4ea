// The lists beside the map: what happened, brokers, links. What the map shows in shapes and colours is here in words.

import { alertsOf } from "./alerts.js";
import { collapse } from "./flapping.js";
import { bits, hertz, isKnown, moment, ms, percent, span } from "./format.js";
import { element, put, putRows } from "./dom.js";
import { latency } from "./past.js";
import { BROKER_LOOKS, HAPPENING_WORDS, LINK_LOOKS, brokerSign, happeningSign, linkSign } from "./signs.js";
import { tierWords } from "./tiers.js";

const SHOWN_MAX = 40;
const WORST_FIRST = ["failed", "down", "suspect", "unknown", "up"];
const BROKERS_WORST_FIRST = ["lost", "unknown", "draining", "serving"];
const READ_MAX = 1000; // happenings that are looked through for flapping

export function showAlerts(place, { past, picture, atS, select, choose }) {
  const alerts = alertsOf(past, picture, atS);
  if (!alerts.length) {
    put(place, element("p", { className: "empty" }, "Nothing is wrong: all brokers and links are up, all topics in time."));
    return;
  }
  const more = alerts.length > SHOWN_MAX ? `and ${alerts.length - SHOWN_MAX} more` : "";
  const after = more ? element("p", { className: "empty" }, more) : null;
  putRows(place, [], alerts.slice(0, SHOWN_MAX).map(row), after);

  function row(alert) {
    const since = isKnown(alert.sinceS) ? `for ${span(Math.max(0, atS - alert.sinceS))}` : "";
    const press = () => {
      if (alert.topic && alert.topic in picture.topics) choose(alert.topic);
      if (alert.select) select(alert.select);
    };
    const make = () =>
      element(
        "button",
        { className: "item", data: { key: alert.key, alert: alert.key, weight: alert.weight }, on: { click: press } },
        happeningSign(alert),
        element("span", { className: "what", ariaLabel: `${alert.weight}: ${alert.text}` }, alert.text),
        element("span", { className: "when" }, since),
        element("span", { className: "more" }, alert.more),
      );
    return { key: alert.key, words: [alert.weight, alert.text, alert.more, since].join(), make };
  }
}

export function showHappened(place, { past, atS, go, expanded, expand }) {
  const read = past.happenings.slice(-READ_MAX).reverse();
  const newest = collapse(read).slice(0, SHOWN_MAX);
  if (!newest.length) {
    put(place, element("p", { className: "empty" }, "Nothing has happened since the monitor looks."));
    return;
  }
  const rows = newest.flatMap(({ happening, others }) => {
    if (!others.length) return [entry(happening)];
    const isOpen = expanded === happening.number;
    return [flapping(happening, others, isOpen), ...(isOpen ? [happening, ...others].map((one) => entry(one)) : [])];
  });
  putRows(place, [], rows, null);
  // In the past, what happened last before the moment that is looked at is what one wants to read.
  const current = place.querySelector(".item:not(.later)");
  if (current && place.dataset.current !== current.dataset.happening) {
    place.dataset.current = current.dataset.happening;
    place.scrollTop = current === place.firstElementChild ? 0 : current.offsetTop - place.offsetTop - 8;
  }

  // What changes to and fro: a click shows its changes.
  function flapping(happening, others, isOpen) {
    const changes = others.length + 1;
    const told = `${changes} changes in ${span(happening.at_s - others.at(-1).at_s)}`;
    const key = `flapping ${happening.number}`;
    const make = () =>
      element(
        "button",
        {
          className: "item",
          title: isOpen ? "Hide the changes" : "Show the changes",
          ariaExpanded: String(isOpen),
          data: { key, flapping: changes, kind: happening.kind },
          on: { click: () => expand(isOpen ? null : happening.number) },
        },
        happeningSign(happening),
        element("span", { className: "what" }, happening.text),
        element("time", { className: "when" }, moment(happening.at_s, past.head.began_ms)),
        element("span", { className: "more" }, `${isOpen ? "▾" : "▸"} ${told}`),
      );
    return { key, words: [told, isOpen].join(), make };
  }

  function entry(happening) {
    const isLater = past.momentOf(happening) > atS + 1e-6;
    const spoken = `${HAPPENING_WORDS[happening.kind]}: ${happening.text}`;
    const make = () =>
      element(
        "button",
        {
          className: isLater ? "item later" : "item",
          title: "Show the overlay at that time",
          data: { key: `happening ${happening.number}`, happening: happening.number, kind: happening.kind },
          on: { click: () => go(happening) },
        },
        happeningSign(happening),
        element(
          "span",
          { className: happening.kind === "deed" ? "what deed" : "what", ariaLabel: spoken },
          happening.text,
        ),
        element("time", { className: "when" }, moment(happening.at_s, past.head.began_ms)),
        element("span", { className: "more" }, reasons(past, happening).join(" · ")),
      );
    return { key: `happening ${happening.number}`, words: String(isLater), make };
  }
}

function reasons(past, happening) {
  const words = [];
  if (happening.cause) words.push(happening.kind === "route" ? `because: ${happening.cause}` : happening.cause);
  if (isKnown(happening.after_ms)) {
    const deed = past.happenings.findLast((one) => one.kind === "deed" && one.at_s <= happening.at_s);
    words.push(`${span(happening.after_ms / 1000)} after “${deed?.text ?? "the action"}”`);
  }
  return words;
}

export function showBrokers(place, { picture, selected, select, wanted, want }) {
  const badness = (name) => BROKERS_WORST_FIRST.indexOf(picture.brokers[name].state);
  const isFound = (name) => name.includes(wanted) || (picture.brokers[name].domain ?? "").includes(wanted);
  const names = Object.keys(picture.brokers)
    .filter(isFound)
    .sort((one, other) => badness(one) - badness(other) || (one < other ? -1 : 1));
  putRows(place, [filter("brokers", wanted, want)], names.slice(0, SHOWN_MAX).map(row), more(names.length));

  function row(name) {
    const broker = picture.brokers[name];
    const look = BROKER_LOOKS[broker.state];
    const inDomain = broker.domain ? `domain ${broker.domain}` : "";
    const role = broker.role === "edge" ? `edge in ${broker.domain}` : broker.role || inDomain;
    const place = [role, tierWords(broker), copyWords(name, broker), gatewayWords(broker)];
    const told = broker.state === "serving" || broker.state === "draining"
      ? `${broker.clients ?? 0} clients · in ${hertz(broker.in_hz ?? 0)} · out ${hertz(broker.out_hz ?? 0)}`
      : broker.why ?? "";
    const figures = [...place, told].filter(Boolean).join(" · ");
    const isChosen = selected?.broker === name;
    const make = () =>
      element(
        "button",
        {
          className: isChosen ? "item chosen" : "item",
          data: { key: `broker ${name}`, broker: name, state: broker.state },
          on: { click: () => select({ broker: name }) },
        },
        brokerSign(broker.state),
        element("span", { className: "what" }, name),
        element("span", { className: `when ${look.shape === "cross" ? "bad" : ""}` }, look.word),
        element("span", { className: "more" }, figures),
      );
    return { key: `broker ${name}`, words: [isChosen, broker.state, figures].join(), make };
  }
}

export function showLinks(place, { picture, usualMs, selected, select, wanted, want }) {
  const badness = (name) => WORST_FIRST.indexOf(picture.links[name].state);
  const names = Object.keys(picture.links)
    .filter((name) => name.includes(wanted))
    .sort((one, other) => badness(one) - badness(other) || (one < other ? -1 : 1));
  putRows(place, [filter("links", wanted, want)], names.slice(0, SHOWN_MAX).map(row), more(names.length));

  function row(name) {
    const link = picture.links[name];
    const look = LINK_LOOKS[link.state];
    const takes = latency(link);
    const loss = Math.max(...link.ways.map((way) => way.loss ?? 0));
    const isSlow = takes !== null && takes > 1.5 * (usualMs[name] ?? takes) + 5;
    const words = [bits(Math.max(...link.ways.map((way) => way.rate_bps ?? 0)))];
    if (loss >= 0.001) words.push(`loss ${percent(loss)}`);
    if (isSlow) words.push(`slow: usually ${ms(usualMs[name])}`);
    const made = [...new Set(link.ways.map((way) => way.emulated).filter((word) => word === "cut"))];
    if (made.length) words.push("cut");
    const isChosen = selected?.link === name;
    const figure = link.state === "up" ? `${isSlow ? "▲ " : ""}${ms(takes)}` : look.word;
    const make = () =>
      element(
        "button",
        {
          className: isChosen ? "item chosen" : "item",
          data: { key: `link ${name}`, link: name, state: link.state },
          on: { click: () => select({ link: name }) },
        },
        linkSign(link.state, 18),
        element("span", { className: "what" }, link.ends.join(" – ")),
        element("span", { className: `when ${isSlow ? "warning" : ""}` }, figure),
        element("span", { className: "more" }, words.join(" · ")),
      );
    return { key: `link ${name}`, words: [isChosen, link.state, figure, ...words].join(), make };
  }
}

// Where it runs if that is another host, and how many copies may continue it.
function copyWords(name, { copies }) {
  if (!copies) return "";
  const inSync = (copies.mirrors ?? []).filter((one) => one.in_sync).length;
  const where = copies.host === name ? "" : `on ${copies.host}, `;
  return `${where}${inSync || "no"} ${inSync === 1 ? "mirror" : "mirrors"} in sync`;
}

// Only those that do not work: a row is short.
function gatewayWords({ gateways = [] }) {
  const down = gateways.filter((one) => one.state !== "up").map((one) => one.gateway);
  return down.length ? `gateway ${down.join(", ")} not up` : "";
}

function filter(what, wanted, want) {
  return element("input", {
    className: "filter",
    type: "search",
    placeholder: `find ${what}`,
    ariaLabel: `find ${what}`,
    value: wanted,
    data: { key: `filter ${what}` },
    on: { input: (event) => want(event.target.value) },
  });
}

function more(found) {
  if (found <= SHOWN_MAX) return null;
  return element("p", { className: "empty" }, `and ${found - SHOWN_MAX} more: find them by name`);
}
