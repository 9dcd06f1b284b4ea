// The map: brokers and links as they are, and the ways of the chosen topic over them.
//
// What stands still is drawn when it changes; what moves, the messages on their ways, is drawn again and again on a
// canvas of its own above it. So a large overlay costs no more than a small one while nothing changes.

import { drawGlobe } from "./globe.js";
import { ms, percent } from "./format.js";
import { beside, crosses, distance, overlaps } from "./geometry.js";
import { boxOf, collapsedOf, grouped, groupedHops, isGroup } from "./groups.js";
import { layout } from "./layout.js";
import { drawBroker, drawGroup, drawSource, groupSize } from "./marks.js";
import { colours } from "./palette.js";
import { latency } from "./past.js";
import { DASHES, hopsOf, routesOf } from "./paths.js";
import { BROKER_LOOKS, LINK_LOOKS, reservedStrength } from "./signs.js";
import { drawBoxes, drawLeader, drawTiers, tierWords } from "./tiers.js";
import { View } from "./view.js";

const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const LABELS_MAX = 60;
const MOVE_EVERY_MS = 30;
const SHARES = [0.5, 0.4, 0.6, 0.3, 0.7]; // of a link, where its label may stand
const BESIDE = 5; // pixels between paths that share a link
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

export class OverlayMap {
  // heard: { broker(name), link(name), nothing() } when something on the map is chosen.
  constructor(canvas, above, heard) {
    this.canvas = canvas;
    this.above = above;
    this.heard = heard;
    this.at = {};
    this.shown = { picture: null, chosen: null, selected: null, usualMs: {} };
    this.over = null;
    this.isStale = true;
    this.movedMs = 0;
    this.view = new View(canvas, () => (this.isStale = true));
    new ResizeObserver(() => this.resize()).observe(canvas);
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => this.setOver(null));
    canvas.addEventListener("click", (event) => this.click(event));
    this.resize();
  }

  // So many pixels on the left and at the bottom are covered.
  cover(left, below) {
    this.view.cover(left, below);
  }

  show(shown) {
    if (shown.picture !== this.shown.picture) this.place(shown.picture);
    this.shown = shown;
    this.isStale = true;
  }

  place(picture) {
    const brokers = Object.entries(picture.brokers).map(([name, one]) => [name, one.role, one.domain].join(":"));
    const names = brokers.join() + "#" + Object.keys(picture.links).join();
    if (names === this.placedFor) return;
    this.placedFor = names;
    const found = layout(picture.brokers, picture.links);
    this.at = found.at;
    this.projection = found.projection;
    this.isTiered = found.isTiered ?? false;
    this.groups = found.groups ?? null;
    const boxed = [...(this.groups ?? [])].map(([key, { names }]) => [key, boxOf(names, this.at)]);
    this.boxes = new Map(boxed);
    this.leans = leans(this.at, picture.links);
    this.view.fit(Object.values(this.at));
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.above]) {
      canvas.width = Math.max(1, Math.round(clientWidth * ratio));
      canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    }
    this.ratio = ratio;
    this.view.resize(clientWidth, clientHeight);
  }

  // Called before each frame.
  frame(nowMs) {
    this.view.ease(STILL.matches);
    const moves = this.hops?.length && !STILL.matches && nowMs - this.movedMs >= MOVE_EVERY_MS;
    if (!this.isStale && !moves) return;
    if (this.isStale) this.draw();
    this.isStale = false;
    this.movedMs = nowMs;
    this.drawMessages(STILL.matches ? 0.5 : (nowMs / 1600) % 1);
  }

  draw() {
    const { picture, chosen } = this.shown;
    const pen = this.canvas.getContext("2d", { alpha: false });
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = colours["--sea"];
    pen.fillRect(0, 0, this.view.width, this.view.height);
    if (!picture) return;
    const toScreen = this.view.toScreen;
    if (this.projection) drawGlobe(pen, this.projection, toScreen, colours);
    this.points = Object.fromEntries(Object.entries(this.at).map(([name, point]) => [name, toScreen(point)]));
    if (this.isTiered) drawTiers(pen, picture.brokers, this.points, FONT);
    const routes = chosen ? routesOf(picture, chosen) : [];
    this.hops = hopsOf(picture, routes);
    this.drawn = this.groups ? this.gather(pen, picture, toScreen) : picture;
    const seat = (name) => this.drawn.seats?.get(name) ?? name;
    this.taken = [];
    this.drawLinks(pen, this.drawn, chosen !== null);
    this.drawHops(pen);
    const ends = {
      sources: new Set(routes.map((route) => seat(route.source))),
      destinations: new Set(routes.flatMap((route) => route.destinations.map(seat))),
    };
    this.drawBrokers(pen, this.drawn, ends);
    this.drawLinkLabels(pen, this.drawn);
  }

  // Groups whose brokers are too near to each other become one mark each; around the others is a box.
  gather(pen, picture, toScreen) {
    const collapsed = collapsedOf(this.groups, this.boxes, this.view, this.shown.selected?.broker);
    const key = collapsed.join();
    if (this.gathered?.of !== picture || this.gathered.key !== key) {
      this.gathered = { of: picture, key, picture: grouped(picture, this.groups, collapsed) };
    }
    this.canvas.dataset.groups = collapsed.length;
    const drawn = this.gathered.picture;
    const open = new Map();
    for (const [name, { title, names }] of this.groups) {
      const points = names.map((one) => this.points[one]).filter(Boolean);
      if (!collapsed.includes(name)) {
        open.set(title, points);
        continue;
      }
      const [left, top, right, bottom] = this.boxes.get(name);
      for (const one of names) delete this.points[one];
      this.points[name] = toScreen([(left + right) / 2, (top + bottom) / 2]);
    }
    if (!this.projection) drawBoxes(pen, open, FONT, 22, 30);
    this.hops = groupedHops(this.hops, drawn.seats);
    return drawn;
  }

  // Links

  drawLinks(pen, picture, isBackground) {
    const together = new Map();
    for (const [name, link] of Object.entries(picture.links)) {
      const [one, other] = link.ends.map((end) => this.points[end]);
      if (!one || !other) continue;
      const look = LINK_LOOKS[link.state];
      const width = link.state === "up" ? widthOf(link) : 2.5;
      const reserved = link.state === "up" ? reservedStrength(link) : 0;
      const key = `${link.state}|${width}|${reserved}`;
      if (!together.has(key)) together.set(key, { look, width, reserved, path: new Path2D() });
      const { path } = together.get(key);
      path.moveTo(...one);
      path.lineTo(...other);
      if (name === this.over?.link || name === this.shown.selected?.link) this.halo(pen, one, other, width);
    }
    for (const { look, width, reserved, path } of together.values()) {
      pen.globalAlpha = isBackground && look.word === "up" ? 0.45 : look.word === "up" ? 0.85 : 1;
      pen.strokeStyle = colours[look.colour];
      pen.lineWidth = width;
      pen.setLineDash(look.dash);
      pen.stroke(path);
      pen.globalAlpha *= reserved;
      pen.strokeStyle = colours["--reserved"];
      if (reserved) pen.stroke(path);
    }
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  halo(pen, one, other, width) {
    pen.strokeStyle = colours["--accent"];
    pen.globalAlpha = 0.3;
    pen.lineWidth = width + 10;
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(...one);
    pen.lineTo(...other);
    pen.stroke();
    pen.globalAlpha = 1;
    pen.lineCap = "butt";
  }

  drawLinkLabels(pen, picture) {
    const links = Object.entries(picture.links);
    const isRoomy = links.length / this.view.nearer ** 2 <= LABELS_MAX;
    const busy = new Set(this.hops.map(({ from, to }) => [from, to].sort().join("|")));
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (const [name, link] of links) {
      const [one, other] = link.ends.map((end) => this.points[end]);
      if (!one || !other) continue;
      const middle = [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2];
      const look = LINK_LOOKS[link.state];
      const isNamed = isRoomy || name === this.over?.link || name === this.shown.selected?.link;
      if (look.mark) this.drawMark(pen, middle, look, isRoomy ? 9 : 5);
      const text = isNamed ? labelOf(link, this.shown.usualMs[name]) : "";
      if (text && Math.hypot(one[0] - other[0], one[1] - other[1]) > 46) {
        const ink = text.includes("▲") ? colours["--warning"] : colours["--soft"];
        this.label(pen, text, ...this.roomFor(pen, text, one, other, busy.has(name), look.mark ? 17 : 0), ink);
      }
    }
  }

  // Where a link's label covers no path of the chosen topic: near the middle if it can be, beside it where a path runs.
  roomFor(pen, text, one, other, isBusy, below) {
    const lines = this.hops.map((hop) => this.hopLine(hop)).filter(Boolean);
    const places = SHARES.flatMap((share) =>
      isBusy
        ? [26, -26, 40, -40].map((far) => beside(one, other, far, share))
        : [[one[0] + (other[0] - one[0]) * share, one[1] + (other[1] - one[1]) * share + below]],
    );
    const isFree = (place) => {
      const box = this.boxOf(pen, text, ...place);
      return !this.taken.some((taken) => overlaps(box, taken)) && !lines.some((line) => crosses(line, box));
    };
    return places.find(isFree) ?? places[0];
  }

  drawMark(pen, [x, y], look, radius) {
    pen.fillStyle = colours["--sheet"];
    pen.strokeStyle = colours[look.colour];
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
    pen.stroke();
    pen.fillStyle = colours[look.colour];
    pen.font = `700 ${radius + 5}px ${FONT}`;
    pen.fillText(look.mark, x, y + 0.5);
  }

  label(pen, text, x, y, ink, weight = 500) {
    const box = this.boxOf(pen, text, x, y, weight);
    if (this.taken.some((other) => overlaps(box, other))) return;
    this.taken.push(box);
    pen.fillStyle = colours["--sheet"];
    pen.globalAlpha = 0.86;
    pen.beginPath();
    pen.roundRect(...box, 5);
    pen.fill();
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    pen.fillText(text, box[0] + box[2] / 2, y + 0.5);
  }

  // What a label covers: left, top, width, height. It stays on the map.
  boxOf(pen, text, x, y, weight = 500) {
    pen.font = `${weight} 12px ${FONT}`;
    const width = pen.measureText(text).width + 10;
    if (x > 0 && x < this.view.width) x = Math.min(Math.max(x, width / 2 + 3), this.view.width - width / 2 - 3);
    return [x - width / 2, y - 9, width, 18];
  }

  // The chosen topic

  // Paths that share a link run beside each other, on the same side in both directions.
  hopLine({ from, to, rank }) {
    const [one, other] = [this.points[from], this.points[to]];
    if (!one || !other) return null;
    const [dx, dy] = [other[0] - one[0], other[1] - one[1]];
    const length = Math.hypot(dx, dy) || 1;
    const side = (from < to ? 1 : -1) * BESIDE * [0, 1, -1, 2][rank];
    const [ox, oy] = [(-dy / length) * side, (dx / length) * side];
    return [one[0] + ox, one[1] + oy, other[0] + ox, other[1] + oy];
  }

  drawHops(pen) {
    for (const hop of [...this.hops].sort((one, other) => other.rank - one.rank)) {
      const line = this.hopLine(hop);
      if (!line) continue;
      pen.strokeStyle = colours[`--path-${hop.rank}`];
      pen.lineWidth = hop.rank ? 3.5 : 5;
      pen.setLineDash(DASHES[hop.rank]);
      pen.beginPath();
      pen.moveTo(line[0], line[1]);
      pen.lineTo(line[2], line[3]);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  // Arrowheads that move the way that messages go.
  drawMessages(phase) {
    const pen = this.above.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.view.width, this.view.height);
    for (const hop of this.hops ?? []) {
      const line = this.hopLine(hop);
      if (!line) continue;
      const [x1, y1, x2, y2] = line;
      const length = Math.hypot(x2 - x1, y2 - y1);
      const heads = Math.max(1, Math.round(length / 110));
      const angle = Math.atan2(y2 - y1, x2 - x1);
      pen.fillStyle = colours[`--path-${hop.rank}`];
      pen.strokeStyle = colours["--sheet"];
      pen.lineWidth = 1.5;
      for (let head = 0; head < heads; head++) {
        const share = (head + phase) / heads;
        pen.save();
        pen.translate(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share);
        pen.rotate(angle);
        pen.beginPath();
        pen.moveTo(8, 0);
        pen.lineTo(-5, -5.5);
        pen.lineTo(-2.5, 0);
        pen.lineTo(-5, 5.5);
        pen.closePath();
        pen.stroke();
        pen.fill();
        pen.restore();
      }
    }
  }

  // Brokers

  drawBrokers(pen, picture, ends) {
    const names = Object.keys(picture.brokers);
    const isRoomy = names.length / this.view.nearer ** 2 <= LABELS_MAX;
    const size = names.length > 60 ? Math.min(8, 4.5 * Math.sqrt(this.view.nearer)) : 9;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const important = [];
    for (const name of names) {
      const point = this.points[name];
      if (!point) continue;
      const broker = picture.brokers[name];
      const look = BROKER_LOOKS[broker.state];
      const isChosen = name === this.over?.broker || name === this.shown.selected?.broker;
      if (isGroup(name)) {
        const half = groupSize(broker.count, this.view.width);
        if (isChosen) this.drawRing(pen, point, 1.3 * half, colours["--accent"], 0.35, 6);
        drawGroup(pen, point, half, broker, FONT);
        important.unshift([name, broker, point, "", look]);
        continue;
      }
      if (isChosen) this.drawRing(pen, point, size + 7, colours["--accent"], 0.35, 6);
      if (ends.destinations.has(name)) this.drawRing(pen, point, size + 6, colours["--path-0"], 1, 2.5);
      drawBroker(pen, point, size, look);
      if (broker.is_leader) drawLeader(pen, point, size);
      const role = ends.sources.has(name) ? "source" : ends.destinations.has(name) ? "destination" : "";
      if (role === "source") drawSource(pen, point, size);
      if (isRoomy || isChosen || role || look.shape === "cross") important.push([name, broker, point, role, look]);
    }
    for (const [name, broker, [x, y], role, look] of important) {
      if (isGroup(name)) {
        const below = y + groupSize(broker.count, this.view.width) + 14;
        this.label(pen, broker.title, x, below, colours["--text"], 650);
        const words = [broker.lost ? `${broker.lost} lost` : "", rates(broker)].filter(Boolean).join(" · ");
        if (words) this.label(pen, words, x, below + 19, colours[broker.lost ? "--bad" : "--soft"]);
        continue;
      }
      const above = this.leans[name] > 0;
      const state = broker.state === "serving" ? rates(broker) : look.word;
      const words = [role, tierWords(broker), state].filter(Boolean).join(" · ");
      const isTold = words && (isRoomy || role);
      this.label(pen, name, x, y + (above ? -size - (isTold ? 35 : 16) : size + 16), colours["--text"], 650);
      if (isTold) {
        const ink = colours[{ serving: "--soft", draining: "--warning" }[broker.state] ?? look.colour];
        this.label(pen, words, x, y + (above ? -size - 16 : size + 35), ink);
      }
    }
  }

  drawRing(pen, [x, y], radius, colour, alpha, width) {
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  // Pointing

  find(x, y, reach) {
    if (!this.points || !this.shown.picture) return null;
    let best = null;
    for (const [name, [bx, by]] of Object.entries(this.points)) {
      const far = Math.hypot(bx - x, by - y);
      if (far < reach + 8 && far < (best?.far ?? Infinity)) best = { broker: name, far };
    }
    if (best) return best;
    for (const [name, link] of Object.entries(this.drawn.links)) {
      const [one, other] = link.ends.map((end) => this.points[end]);
      if (!one || !other) continue;
      const far = distance(x, y, one, other);
      if (far < reach && far < (best?.far ?? Infinity)) best = { link: name, far };
    }
    return best;
  }

  hover(event) {
    if (event.pointerType === "touch" || event.buttons) return;
    this.setOver(this.find(event.offsetX, event.offsetY, 8));
  }

  setOver(found) {
    if (found?.broker === this.over?.broker && found?.link === this.over?.link) return;
    this.over = found;
    this.canvas.classList.toggle("over", found !== null);
    this.isStale = true;
  }

  click(event) {
    if (!this.view.wasClick) return;
    const found = this.find(event.offsetX, event.offsetY, event.pointerType === "touch" ? 18 : 9);
    if (found?.broker && isGroup(found.broker)) this.view.zoomTo(this.boxes.get(found.broker));
    else if (found?.link && this.drawn.links[found.link].bundle) this.zoomToEnds(found.link);
    else if (found?.broker) this.heard.broker(found.broker);
    else if (found?.link) this.heard.link(found.link);
    else this.heard.nothing();
  }

  zoomToEnds(link) {
    const names = this.drawn.links[link].ends.flatMap((end) => this.groups.get(end)?.names ?? [end]);
    this.view.zoomTo(boxOf(names, this.at));
  }
}

// How far down the links of each broker lead: its name stands on the other side.
function leans(at, links) {
  const found = Object.fromEntries(Object.keys(at).map((name) => [name, 0]));
  for (const { ends } of Object.values(links)) {
    const [one, other] = ends.map((end) => at[end]);
    if (!one || !other) continue;
    const steep = (other[1] - one[1]) / (Math.hypot(other[0] - one[0], other[1] - one[1]) || 1);
    found[ends[0]] += steep;
    found[ends[1]] -= steep;
  }
  return found;
}

// By its load, in a few steps so that links can be drawn together.
function widthOf(link) {
  const load = Math.max(...link.ways.map((way) => way.rate_bps ?? 0));
  return load < 2e4 ? 1.5 : load < 1e5 ? 2.25 : load < 1e6 ? 3.25 : load < 1e7 ? 4.5 : 6;
}

function labelOf(link, usualMs) {
  if (link.bundle) return link.bundle.bad ? `${link.bundle.bad} of ${link.bundle.count} links not up` : "";
  const takes = latency(link);
  if (link.state === "failed" || link.state === "down") return "";
  if (takes === null) return "";
  const words = [ms(takes)];
  if (usualMs !== undefined && takes > 1.5 * usualMs + 5) words[0] = `▲ ${words[0]}`;
  const loss = Math.max(...link.ways.map((way) => way.loss ?? 0));
  if (loss >= 0.001) words.push(`loss ${percent(loss)}`);
  const full = Math.max(...link.ways.map((way) => (way.queue_bytes ?? 0) / (way.queue_bytes_max || Infinity)));
  if (full >= 0.05) words.push(`queue ${percent(full)}`);
  const reserved = Math.max(...link.ways.map((way) => way.reserved ?? 0));
  if (reserved > 0) words.push(`reserved ${percent(reserved)}`);
  return words.join(" · ");
}

function rates(broker) {
  const words = [];
  if (broker.in_hz) words.push(`${Math.round(broker.in_hz)}/s in`);
  if (broker.out_hz) words.push(`${Math.round(broker.out_hz)}/s out`);
  return words.join(" · ");
}
