// The inspector: one broker or one link in detail, how it went, and what can be done to it.

import { bits, bytes, hertz, isKnown, ms, percent } from "./format.js";
import { drawChart } from "./chart.js";
import { element, put } from "./dom.js";
import { BROKER_LOOKS, LINK_LOOKS, brokerSign, linkSign } from "./signs.js";


export function showInspector(place, shown) {
  const { picture, selected } = shown;
  const link = selected?.link && picture.links[selected.link];
  const broker = selected?.broker && picture.brokers[selected.broker];
  place.hidden = !link && !broker;
  if (place.hidden) return;
  // A field that is being filled in is not taken away from under the hands.
  const focused = place.contains(document.activeElement) ? document.activeElement.tagName : "";
  if (focused === "INPUT" && place.dataset.of === nameOf(selected)) {
    for (const draw of place.charts ?? []) draw(shown);
    return;
  }
  place.dataset.of = nameOf(selected);
  place.charts = [];
  const parts = link
    ? linkParts(place, selected.link, link, shown)
    : brokerParts(place, selected.broker, broker, shown);
  put(place, ...parts);
  for (const draw of place.charts) draw(shown);
}

const nameOf = (selected) => selected.link ?? selected.broker;

function header(sign, title, state, word, close) {
  return element(
    "header",
    {},
    sign,
    element("h2", {}, title, element("div", { className: "state", data: { state } }, word)),
    element(
      "button",
      { className: "plain", ariaLabel: "Close", title: "Close (esc)", data: { key: "close" }, on: { click: close } },
      "✕",
    ),
  );
}

// Links

function linkParts(place, name, link, shown) {
  const [one, other] = link.ends;
  const [there, back] = link.ways;
  const look = LINK_LOOKS[link.state];
  const row = (title, valueOf) => [
    element("dt", {}, title),
    element("dd", {}, valueOf(there)),
    element("dd", {}, valueOf(back)),
  ];
  // What was measured last says nothing of a connection that is gone.
  const now = (way) => (way.state === "down" ? {} : way);
  const loss = (way) => (isKnown(now(way).loss) ? percent(way.loss) : "–");
  const facts = element(
    "dl",
    { className: "facts" },
    element("dt", {}, ""),
    element("dd", { className: "head", title: `from ${one} to ${other}` }, `${one} →`),
    element("dd", { className: "head", title: `from ${other} to ${one}` }, `← ${other}`),
    ...row("state", (way) => LINK_LOOKS[way.state ?? "unknown"].word),
    ...row("latency", (way) => ms(now(way).latency_ms)),
    ...row("jitter", (way) => ms(now(way).jitter_ms)),
    ...row("loss", loss),
    ...row("load", (way) => bits(way.rate_bps ?? 0)),
    ...row("queue", (way) => (way.queue_bytes_max ? `${bytes(way.queue_bytes ?? 0)}` : "–")),
    ...(there.reserved || back.reserved ? row("reserved", (way) => percent(way.reserved ?? 0)) : []),
    ...(there.emulated || back.emulated ? row("emulated", (way) => way.emulated || "–") : []),
  );
  return [
    header(linkSign(link.state), link.ends.join(" – "), link.state, look.word, shown.close),
    facts,
    pairChart(place, shown, "latency", name, (way) => way.latency_ms, ms),
    pairChart(place, shown, "load", name, (way) => way.rate_bps ?? 0, bits),
    pairChart(place, shown, "loss", name, (way) => way.loss, percent),
    pairChart(place, shown, "queue", name, (way) => way.queue_bytes ?? 0, bytes),
    shown.canDo ? linkDeeds(name, shown) : null,
  ];
}

// Both directions of a link, told apart by their dash.
function pairChart(place, shown, title, name, valueOf, format) {
  const way = (index) => (link) => (link.ways[index].state === "down" ? null : valueOf(link.ways[index]));
  return chart(place, title, (past, fromS, untilS) => {
    const there = past.series("links", name, way(0), fromS, untilS);
    const back = past.series("links", name, way(1), fromS, untilS);
    return { lines: pair(there, back), format };
  });
}

// Two lines, told apart by their dash too.
const pair = (one, other) => [
  { points: one, colour: "--path-0" },
  { points: other, colour: "--path-1", dash: [4, 3] },
];

function linkDeeds(name, shown) {
  const latency = element("input", { value: "80ms", ariaLabel: "latency", data: { key: "latency" } });
  return deeds(
    shown,
    element(
      "div",
      { className: "row" },
      act(shown, "slow", () => ({ link: name, latency: latency.value.trim() }), "Slow to"),
      latency,
    ),
    element(
      "div",
      { className: "row" },
      act(shown, "cut", () => ({ link: name }), "Cut", "danger"),
      act(shown, "heal", () => ({ link: name }), "Heal"),
    ),
  );
}

// Brokers

function brokerParts(place, name, broker, shown) {
  const look = BROKER_LOOKS[broker.state];
  const isThere = broker.state === "serving" || broker.state === "draining";
  const fact = (title, value) => [element("dt", {}, title), element("dd", {}, value)];
  const facts = element(
    "dl",
    { className: "facts two" },
    ...(broker.role ? fact("role", broker.is_leader ? `${broker.role}, leader` : broker.role) : []),
    ...(broker.role === "edge" ? fact("domain", broker.domain) : []),
    ...(broker.role === "routing" ? fact("carries", `${broker.bundles ?? 0} bundles of topics`) : []),
    ...(broker.why ? fact("because", broker.why) : []),
    ...(broker.address ? fact("clients connect to", broker.address) : []),
    ...(isThere
      ? [
          ...fact("clients", `${broker.clients ?? 0}`),
          ...fact("from clients", hertz(broker.in_hz ?? 0)),
          ...fact("to clients", hertz(broker.out_hz ?? 0)),
          ...fact("delivered in time", isKnown(broker.in_time) ? percent(broker.in_time) : "–"),
          ...fact("queued for clients", `${broker.queue_messages ?? 0} messages`),
          ...fact("dropped", `${broker.dropped ?? 0}`),
          ...(broker.memory_mib ? fact("loop lag, memory", `${ms(broker.lag_ms ?? 0)}, ${broker.memory_mib} MiB`) : []),
          ...(broker.memory_mib ? fact("processor", percent(broker.cpu ?? 0)) : []),
        ]
      : []),
  );
  return [
    header(brokerSign(broker.state), name, broker.state, look.word, shown.close),
    facts,
    broker.copies ? copiesTable(broker.copies) : null,
    broker.gateways?.length ? gatewaysTable(broker.gateways) : null,
    chart(place, "messages", (past, fromS, untilS) => ({
      lines: pair(
        past.series("brokers", name, alive((one) => one.in_hz ?? 0), fromS, untilS),
        past.series("brokers", name, alive((one) => one.out_hz ?? 0), fromS, untilS),
      ),
      format: hertz,
    })),
    chart(place, "queued for clients", (past, fromS, untilS) => {
      const points = past.series("brokers", name, alive((one) => one.queue_messages ?? 0), fromS, untilS);
      return { lines: [{ points, colour: "--path-0" }], format: (value) => `${Math.round(value)}` };
    }),
    chart(place, "delivered in time", (past, fromS, untilS) => {
      const points = past.series("brokers", name, alive((one) => one.in_time ?? null), fromS, untilS);
      return { lines: [{ points, colour: "--path-0", fill: true }], most: 1.08, format: percent };
    }),
    shown.canRestart ? brokerDeeds(name, broker, shown) : null,
  ];
}

// Which hosts have a copy of the broker, and how far behind they are.
function copiesTable({ host, epoch, mirrors = [] }) {
  const row = (...cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  const behind = (one) => `${bytes(one.lag_bytes ?? 0)}, ${ms(one.lag_ms ?? 0)}`;
  return element(
    "table",
    { className: "copies" },
    element("caption", {}, "copies"),
    element("tr", {}, ...["host", "state", "behind"].map((title) => element("th", {}, title))),
    row(host, `primary, epoch ${epoch}`, ""),
    ...mirrors.map((one) => row(one.host, one.in_sync ? "in sync" : "catching up", behind(one))),
    ...(mirrors.length ? [] : [row("none", "no mirror", "")]),
  );
}

// Brokers of other technologies that gateways join to the broker.
function gatewaysTable(gateways) {
  const row = (...cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  return element(
    "table",
    { className: "copies gateways" },
    element("caption", {}, "gateways"),
    element("tr", {}, ...["name", "to", "state", "in, out", "waiting"].map((title) => element("th", {}, title))),
    ...gateways.map((one) =>
      row(
        one.gateway,
        one.to,
        one.why ? `${one.state}: ${one.why}` : one.state,
        `${hertz(one.in_hz ?? 0)}, ${hertz(one.out_hz ?? 0)}`,
        `${one.waiting ?? 0}`,
      ),
    ),
  );
}

const alive = (valueOf) => (broker) => (broker.state === "lost" || broker.state === "unknown" ? null : valueOf(broker));

function brokerDeeds(name, broker, shown) {
  const isThere = broker.state === "serving" || broker.state === "draining";
  const wanted = () => ({ broker: name });
  return deeds(
    shown,
    element(
      "div",
      { className: "row" },
      act(shown, "stop", wanted, "Stop", "", !isThere),
      act(shown, "kill", wanted, "Kill", "danger", !isThere),
      act(shown, "restart", wanted, isThere ? "Restart" : "Start"),
    ),
  );
}

// Both

function chart(place, title, find) {
  const canvas = element("canvas", { role: "img", ariaLabel: `${title} over time` });
  const value = element("b", {}, "");
  place.charts.push(({ past, atS }) => {
    const untilS = past.head.is_live ? Math.max(past.lastS, past.firstS + 10) : past.head.until_s ?? past.lastS;
    const endS = Math.min(untilS, Math.max(atS + past.chartS / 2, past.firstS + past.chartS));
    const fromS = Math.max(past.firstS, endS - past.chartS);
    const { lines, format, most = null } = find(past, fromS, endS);
    drawChart(canvas, { lines, fromS, untilS: endS, atS, most, named: format });
    const now = lines.map((line) => line.points.findLast((point) => point[0] <= atS + 1e-6)?.[1]).filter(isKnown);
    value.textContent = now.length ? now.map(format).join(" / ") : "–";
  });
  return element("div", { className: "chart" }, element("h3", {}, title, value), canvas);
}

function deeds(shown, ...rows) {
  const said = element("p", { className: "said", role: "alert" }, shown.said ?? "");
  return element("div", { className: "deeds" }, element("h2", {}, "Try it"), ...rows, said);
}

function act(shown, deed, wanted, word, className = "", disabled = false) {
  const on = { click: () => shown.act(deed, wanted()) };
  return element("button", { className, disabled, data: { key: `deed ${deed}`, deed }, on }, word);
}
