// The past, as the monitor tells it: the first picture, every change since, and what happened.
//
// A picture at any moment follows from a nearby one that was kept and the changes after it. Pictures that were given
// out are never changed again: whoever holds one may compare it with another by identity of its parts.

import { isKnown } from "./format.js";

const KINDS = ["brokers", "links", "routes", "topics"];
const KEPT_EVERY = 64;
const KEPT_S = 3600;
const CHANGES_MAX = 7200;
const THINGS_MAX = 200_000;
const HAPPENINGS_MAX = 2000;

export class Past {
  constructor(head) {
    this.head = head;
    this.changes = [];
    this.happenings = [...(head.happenings ?? [])];
    this.usualMs = {};
    this.kept = [{ index: -1, picture: head.picture }];
    this.latest = { index: -1, picture: head.picture };
    this.given = this.latest;
    this.things = 0;
    this.measure(head.picture.links);
  }

  // How much of the past charts show: two minutes, or more where states are far apart.
  get chartS() {
    return Math.max(120, 60 * (this.head.step_s ?? 0));
  }

  get firstS() {
    return this.kept[0].picture.at_s;
  }

  get lastS() {
    return this.changes.length ? this.changes.at(-1).at_s : this.firstS;
  }

  add(change) {
    this.changes.push(change);
    if (change.happenings) this.happenings.push(...change.happenings);
    if (change.links) this.measure(change.links);
    const index = this.changes.length - 1;
    this.latest = { index, picture: applied(this.latest.picture, change) };
    if (index % KEPT_EVERY === 0) this.kept.push(this.latest);
    this.things += sizeOf(change);
    if (this.head.is_live && this.isTooMuch()) this.forget();
  }

  isTooMuch() {
    return this.changes.length > CHANGES_MAX || this.things > THINGS_MAX || this.lastS - this.firstS > 1.1 * KEPT_S;
  }

  // The older part of it, up to a picture that was kept.
  forget() {
    const first = this.kept.find(({ index }) => index >= this.changes.length / 4) ?? this.latest;
    const gone = first.index + 1;
    const moved = ({ index, picture }) => ({ index: index - gone, picture });
    this.changes = this.changes.slice(gone);
    this.kept = this.kept.filter(({ index }) => index >= first.index).map(moved);
    this.latest = moved(this.latest);
    this.given = this.latest;
    this.things = this.changes.reduce((sum, change) => sum + sizeOf(change), 0);
    this.happenings = this.happenings.slice(-HAPPENINGS_MAX);
  }

  // The least that each link ever took: what is usual for it.
  measure(links) {
    for (const [name, link] of Object.entries(links ?? {})) {
      const measured = latency(link);
      if (measured !== null) this.usualMs[name] = Math.min(this.usualMs[name] ?? Infinity, measured);
    }
  }

  // The index of the last change at or before a time; -1 is the first picture.
  indexAt(atS) {
    let low = 0;
    let high = this.changes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.changes[middle].at_s <= atS) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  // The first picture that has this happening in it.
  momentOf(happening) {
    const found = this.changes[this.indexAt(happening.at_s - 1e-6) + 1];
    return found ? found.at_s : this.lastS;
  }

  pictureAt(atS) {
    const index = this.indexAt(atS);
    if (index === this.latest.index) return this.latest.picture;
    if (index === this.given.index) return this.given.picture;
    let from = this.given.index < index && index - this.given.index <= KEPT_EVERY ? this.given : this.keptBefore(index);
    const picture = applied(from.picture, ...this.changes.slice(from.index + 1, index + 1));
    this.given = { index, picture };
    return picture;
  }

  keptBefore(index) {
    let low = 0;
    let high = this.kept.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.kept[middle].index <= index) low = middle + 1;
      else high = middle;
    }
    return this.kept[low - 1];
  }

  // How something went: [time, value] for each moment it changed, with what it was at the beginning and the end.
  series(kind, name, valueOf, fromS, untilS) {
    const points = [];
    const first = this.thingAt(kind, name, this.indexAt(fromS));
    if (first) points.push([fromS, valueOf(first)]);
    for (let index = this.indexAt(fromS) + 1; index < this.changes.length; index++) {
      const change = this.changes[index];
      if (change.at_s > untilS) break;
      const thing = change[kind]?.[name];
      if (thing) points.push([change.at_s, valueOf(thing)]);
    }
    if (points.length) points.push([untilS, points.at(-1)[1]]);
    return points;
  }

  // One thing as it was, without the rest of the picture.
  thingAt(kind, name, index) {
    const kept = this.keptBefore(index);
    for (let at = index; at > kept.index; at--) {
      const change = this.changes[at];
      if (change[kind]?.[name]) return change[kind][name];
      if (change.gone?.[kind]?.includes(name)) return undefined;
    }
    return kept.picture[kind][name];
  }
}

const sizeOf = (change) => KINDS.reduce((sum, kind) => sum + Object.keys(change[kind] ?? {}).length, 1);

// A picture after changes that follow each other. What is large is copied once, however many they are.
function applied(picture, ...changes) {
  if (!changes.length) return picture;
  const next = { ...picture, at_s: changes.at(-1).at_s };
  for (const kind of KINDS) {
    if (!changes.some((change) => change[kind] || change.gone?.[kind])) continue;
    next[kind] = { ...picture[kind] };
    for (const change of changes) {
      Object.assign(next[kind], change[kind]);
      for (const name of change.gone?.[kind] ?? []) delete next[kind][name];
    }
  }
  return next;
}

// Of the slower direction; null where nothing is measured.
export function latency(link) {
  const measured = link.ways.map((way) => way.latency_ms).filter(isKnown);
  return measured.length ? Math.max(...measured) : null;
}
