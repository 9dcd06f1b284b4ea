// Flapping: what changes to and fro is one entry of the timeline, with how often it changed and in which time.

const CHANGES_MIN = 6; // one outage has up to four: suspected, disconnected, failed, up
const PAUSE_S = 30; // without a change ends it

// Happenings, the newest first -> [{ happening, others }], with `others` older ones of the same thing.
export function collapse(newest) {
  const runs = new Map(); // the run of each thing that goes on
  const found = [];
  for (const happening of newest) {
    const key = keyOf(happening);
    const run = key && runs.get(key);
    if (run && run.at(-1).at_s - happening.at_s <= PAUSE_S) {
      run.push(happening);
      continue;
    }
    const fresh = [happening];
    if (key) runs.set(key, fresh);
    found.push(fresh);
  }
  const entries = found.flatMap((run) =>
    run.length >= CHANGES_MIN
      ? [{ happening: run[0], others: run.slice(1) }]
      : run.map((happening) => ({ happening, others: [] })),
  );
  return entries.sort((one, other) => other.happening.number - one.happening.number);
}

function keyOf({ kind, link, brokers, filters }) {
  if (kind === "link") return `link ${link}`;
  if (kind === "broker") return `broker ${brokers?.[0]}`;
  if (kind === "route") return `route ${brokers?.join()} ${filters?.join()}`;
  return kind === "deadline" ? `deadline ${brokers?.join()}` : null; // what people do is never collapsed
}
