// The page: what is told, which moment of it is looked at, what is chosen, and who shows it.
//
// Nothing is drawn when something is told, but before the next frame, and the panels no more often than a few times a
// second: however fast changes come, the page does not fall behind.

import { byId, element, onSkipped, put } from "./dom.js";
import { isKnown, moment, share, span } from "./format.js";
import { showInspector } from "./inspector.js";
import { showLegend } from "./legend.js";
import { alertsOf, countOf } from "./alerts.js";
import { showAlerts, showBrokers, showHappened, showLinks } from "./lists.js";
import { OverlayMap } from "./map.js";
import { startTheme } from "./palette.js";
import { Past } from "./past.js";
import { Player } from "./player.js";
import { icon } from "./signs.js";
import { Stream } from "./stream.js";
import { showStreamForm } from "./streamform.js";
import { showTopics } from "./topics.js";
import { Track } from "./track.js";

const PANELS_EVERY_MS = 240;
const LIST_EVERY_MS = 900; // nobody reads faster
const PANELS_SHARE = 8; // panels may take one in so many milliseconds
const TOOLS_PX = 40; // on a phone they lie below the map's brokers
const NARROW = matchMedia("(max-width: 760px)");

const TOPICS_FEW = 6; // they need no tools

const state = { topicsShown: [], expanded: null, past: null, chosen: null, selected: null, tab: "happened", wanted: "", said: "", lostMs: null };
let isDirty = true;
let listMs = 0; // when the list may be
let panelsMs = 0; // when the panels may be shown anew

const player = new Player((isSought) => {
  isDirty = true;
  if (isSought) panelsMs = listMs = 0;
});
const map = new OverlayMap(byId("map"), byId("messages"), {
  broker: (name) => select({ broker: name }),
  link: (name) => select({ link: name }),
  nothing: () => select(null),
});
const track = new Track(byId("track"), byId("scrub"), (atS) => player.seek(atS));
const toggleTheme = startTheme(() => {
  map.isStale = true;
  isDirty = true;
  panelsMs = 0;
});

const stream = new Stream({
  head(head) {
    state.past = new Past(head);
    byId("title").textContent = head.title;
    document.title = `${head.title} – Overlane`;
    byId("tab-stream").hidden = !head.is_chaotic;
    byId("speed-label").hidden = false;
    byId("live").hidden = !head.is_live;
    if (head.step_s) player.speed = Number((byId("speed").value = head.until_s > 20_000 ? 1000 : 100)); // days, or hours
  },
  change: (change) => state.past.add(change),
  caughtUp() {
    if (player.past !== state.past) player.begin(state.past);
    player.grown();
    isDirty = true;
  },
  lost() {
    state.lostMs = performance.now();
    panelsMs = 0;
  },
  back() {
    state.lostMs = null;
    isDirty = true;
  },
  refused: askForToken,
});

// Choosing

function choose(topic) {
  state.chosen = topic;
  refresh();
}

function select(found) {
  state.selected = found;
  state.said = "";
  refresh();
}

function open(tab) {
  state.tab = tab;
  state.wanted = "";
  state.said = "";
  put(byId("list"));
  for (const button of document.querySelectorAll("[role=tab]")) {
    button.ariaSelected = String(button.id === `tab-${tab}`);
    button.tabIndex = button.id === `tab-${tab}` ? 0 : -1;
  }
  refresh();
}

function go(happening) {
  player.isPlaying = false;
  player.seek(state.past.momentOf(happening));
  if (happening.link) state.selected = { link: happening.link };
  else if (happening.kind === "broker") state.selected = { broker: happening.brokers[0] };
  const known = (happening.filters ?? []).find((name) => name in state.past.latest.picture.topics);
  if (known) state.chosen = known;
  refresh();
}

async function act(deed, wanted) {
  state.said = "";
  player.follow();
  state.said = await stream.deed(deed, wanted);
  refresh();
}

function refresh() {
  isDirty = true;
  panelsMs = listMs = 0;
}

onSkipped(refresh);

// Showing

function frame(nowMs) {
  requestAnimationFrame(frame);
  if (!player.past) return;
  player.step(nowMs);
  if (isDirty || state.lostMs !== null) {
    const picture = player.past.pictureAt(player.atS);
    if (isDirty) map.show({ picture, chosen: state.chosen, selected: state.selected, usualMs: player.past.usualMs });
    isDirty = false;
    state.isPending = true;
  }
  if (state.isPending && nowMs >= panelsMs) {
    state.isPending = false;
    const beganMs = performance.now();
    showPanels(player.past.pictureAt(player.atS), nowMs);
    panelsMs = nowMs + Math.max(PANELS_EVERY_MS, PANELS_SHARE * (performance.now() - beganMs));
  }
  map.frame(nowMs);
}

function showPanels(picture, nowMs) {
  const { past } = player;
  const { atS } = player;
  const shared = { past, picture, atS, selected: state.selected, select, act, said: state.said };
  showMode(picture, nowMs);
  showGlance(picture, past.head.target);
  const topics = { ...shared, chosen: state.chosen, choose };
  const hasMany = Object.keys(picture.topics).length > TOPICS_FEW;
  byId("topic-tools").hidden = !hasMany;
  const order = hasMany ? byId("topic-order").value : "file";
  state.topicsShown = showTopics(byId("topics"), { ...topics, wanted: hasMany ? byId("topic-find").value : "", order });
  const list = byId("list");
  if (nowMs >= listMs && !isBeingFilled(list)) {
    showList(list, shared);
    listMs = nowMs + LIST_EVERY_MS;
  } else {
    state.isPending = true; // it comes a little later
  }
  showInspector(byId("inspector"), {
    ...shared,
    close: () => select(null),
    canDo: past.head.is_chaotic,
    canRestart: past.head.can_restart,
  });
  const beside = byId("inspector").hidden ? 0 : byId("inspector").offsetWidth + 12;
  map.cover(NARROW.matches ? 0 : beside, NARROW.matches ? TOOLS_PX : 0);
  track.draw(past, player);
}

// A form is not taken away from under the hands.
const isBeingFilled = (place) =>
  state.tab === "stream" && !state.said && place.querySelector("form")?.contains(document.activeElement);

function showList(list, shared) {
  const want = (wanted) => {
    state.wanted = wanted;
    refresh();
  };
  const found = { ...shared, wanted: state.wanted, want };
  const expand = (number) => {
    state.expanded = number;
    refresh();
  };
  showAlertCount(shared);
  if (state.tab === "happened") showHappened(list, { ...found, go, expanded: state.expanded, expand });
  else if (state.tab === "alerts") showAlerts(list, { ...found, choose });
  else if (state.tab === "brokers") showBrokers(list, found);
  else if (state.tab === "links") showLinks(list, { ...found, usualMs: player.past.usualMs });
  else showStreamForm(list, found);
}

function showAlertCount({ past, picture, atS }) {
  const alerts = alertsOf(past, picture, atS);
  const isBad = alerts.some((one) => one.weight === "bad");
  const count = element("span", { className: `count ${isBad ? "bad" : "warning"}` }, ` ${countOf(alerts)}`);
  put(byId("tab-alerts"), "Alerts", alerts.length ? count : null);
}

function showMode(picture, nowMs) {
  const { head } = player.past;
  const when = moment(player.atS, head.began_ms);
  const isLost = state.lostMs !== null;
  const mode = isLost ? "lost" : !head.is_live ? "recording" : player.isFollowing ? "live" : "past";
  const words = { lost: "✗ contact lost", recording: "▷ recording", live: "● live", past: "‖ past" };
  const pill = byId("mode");
  if (pill.textContent !== words[mode]) pill.textContent = words[mode];
  pill.dataset.mode = mode;
  document.body.classList.toggle("stale", isLost);
  byId("clock").textContent = when;
  byId("live").classList.toggle("on", player.isFollowing);
  const isRunning = player.isPlaying || player.isFollowing;
  if (byId("play").dataset.sign !== String(isRunning)) {
    byId("play").dataset.sign = isRunning;
    byId("play").ariaLabel = isRunning ? "Pause" : "Play";
    put(byId("play"), icon(isRunning ? "pause" : "play"));
  }
  showBanner(picture, head, mode, when, nowMs);
}

function showBanner(picture, head, mode, when, nowMs) {
  const banner = byId("banner");
  const brokers = Object.values(picture.brokers);
  const isSilent = head.is_live && brokers.every((one) => one.state === "lost" || one.state === "unknown");
  let said = [];
  if (mode === "lost") {
    const forS = Math.max(1, Math.round((nowMs - state.lostMs) / 1000));
    const then = `Shown is the state at ${when}. Reconnecting…`;
    said = [`No connection to the monitor for ${span(forS)}. ${then}`];
  } else if (mode === "past") {
    said = [`Showing ${when}.`, element("button", { on: { click: () => player.follow() } }, "Back to live")];
  } else if (isSilent) {
    said = ["No broker responds to the monitor."];
  }
  banner.hidden = !said.length;
  banner.className = mode === "past" ? "banner past" : "banner";
  const text = said.map((one) => one.textContent ?? one).join();
  if (banner.dataset.said !== text) {
    banner.dataset.said = text;
    put(banner, ...said);
  }
}

const inTimeKnown = new WeakMap();

// Of all topics with a deadline, once for each picture.
function inTimeOf(topics) {
  const known = inTimeKnown.get(topics);
  if (known) return known;
  let inTime = 0;
  let due = 0;
  for (const { deadline_ms, lately } of Object.values(topics)) {
    if (!isKnown(deadline_ms)) continue;
    inTime += lately?.in_time ?? 0;
    due += (lately?.delivered ?? 0) + (lately?.lost ?? 0);
  }
  inTimeKnown.set(topics, { inTime, due });
  return { inTime, due };
}

function showGlance(picture, target) {
  const brokers = Object.values(picture.brokers);
  const links = Object.values(picture.links);
  const serving = brokers.filter((one) => one.state === "serving").length;
  const up = links.filter((one) => one.state === "up").length;
  const { inTime, due } = inTimeOf(picture.topics);
  const part = (name, value, isGood, title) =>
    element("div", { title }, element("dt", {}, name), element("dd", { className: isGood ? "" : "bad" }, value));
  put(
    byId("glance"),
    part("brokers", `${serving}/${brokers.length}`, serving === brokers.length, "serving / total"),
    part("links", `${up}/${links.length}`, up === links.length, "up / total"),
    part("in time", share(inTime, due), !due || inTime / due >= target, "recent messages with a deadline"),
  );
}

// The token

function askForToken(wasWrong) {
  const dialog = byId("gate");
  byId("gate-wrong").textContent = wasWrong ? "Wrong token." : "";
  if (!dialog.open) dialog.showModal();
  return new Promise((given) => {
    const enter = (event) => {
      event.preventDefault();
      dialog.close();
      given(byId("token").value.trim());
    };
    byId("gate-form").onsubmit = enter;
  });
}

// Hands

byId("play").addEventListener("click", () => player.toggle());
byId("back").addEventListener("click", () => player.skip(-1));
byId("forth").addEventListener("click", () => player.skip(1));
byId("live").addEventListener("click", () => player.follow());
byId("speed").addEventListener("change", (event) => (player.speed = Number(event.target.value)));
byId("theme").addEventListener("click", toggleTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());
byId("keys-close").addEventListener("click", () => byId("keys").close());
for (const name of ["back", "forth", "fit", "theme"]) byId(name).append(icon(name));
byId("zoom-in").addEventListener("click", () => map.view.zoom(1.4));
byId("zoom-out").addEventListener("click", () => map.view.zoom(1 / 1.4));
byId("fit").addEventListener("click", () => map.view.home());
for (const name of ["topic-find", "topic-order"]) byId(name).addEventListener("input", refresh);
const tabs = ["happened", "alerts", "brokers", "links", "stream"];
for (const tab of tabs) {
  byId(`tab-${tab}`).addEventListener("click", () => open(tab));
  byId(`tab-${tab}`).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const shown = tabs.filter((name) => !byId(`tab-${name}`).hidden);
    const next = shown[(shown.indexOf(tab) + step + shown.length) % shown.length];
    open(next);
    byId(`tab-${next}`).focus();
    event.stopPropagation();
  });
}

const KEYS = {
  " ": () => player.toggle(),
  ArrowLeft: () => player.seek(player.atS - (state.past.head.step_s ?? 1)),
  ArrowRight: () => player.seek(player.atS + (state.past.head.step_s ?? 1)),
  ",": () => player.skip(-1),
  ".": () => player.skip(1),
  l: () => player.follow(),
  t: toggleTheme,
  "+": () => map.view.zoom(1.4),
  "-": () => map.view.zoom(1 / 1.4),
  0: () => map.view.home(),
  "?": () => byId("keys").showModal(),
  Escape: () => {
    state.chosen = null;
    select(null);
  },
};

document.addEventListener("keydown", (event) => {
  const isField = event.target.matches("input:not([type=range]), select, textarea");
  const isTyping = isField || document.querySelector("dialog[open]");
  if (!player.past || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && event.target.matches("button, summary")) return;
  if (event.key.startsWith("Arrow") && event.target.id === "scrub") return;
  const number = Number(event.key);
  const topic = state.topicsShown[number - 1];
  const action = KEYS[event.key] ?? (topic && (() => choose(topic)));
  if (!action) return;
  event.preventDefault();
  action();
});

// A phone has no room for the legend.
if (NARROW.matches) byId("legend").open = false;
showLegend(byId("legend-body"));
requestAnimationFrame(frame);
stream.run();
