// Numbers as people read them. What is not known is null where it was told, and undefined where it was left out.

export const isKnown = (value) => value !== null && value !== undefined;

export function ms(value) {
  if (!isKnown(value)) return "–";
  return value >= 1000 ? `${digits(value / 1000).replace(/\.0$/, "")} s` : `${digits(value)} ms`;
}

export function digits(value) {
  if (value === 0) return "0";
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1).replace(/\.0$/, "") : value.toFixed(value >= 1 ? 1 : 2);
}

// Never 100 % unless it is all of them.
export function share(part, whole) {
  if (!whole) return "–";
  if (part === whole) return "100 %";
  return `${Math.min((100 * part) / whole, 99.99).toFixed(2)} %`;
}

export const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

export function count(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  return value >= 10_000 ? `${(value / 1000).toFixed(value >= 1e5 ? 0 : 1)} k` : `${Math.round(value)}`;
}

export const hertz = (value) => (value >= 1000 ? `${(value / 1000).toFixed(1)} k/s` : `${digits(value)}/s`);

export function bits(value) {
  for (const [unit, size] of [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${Math.round(value)} bit/s`;
}

export function bytes(value) {
  for (const [unit, size] of [["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${value} B`;
}

export function span(value) {
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value >= 5400) return value >= 172_800 ? `${Math.round(value / 86_400)} d` : `${Math.round(value / 3600)} h`;
  return value < 90 ? `${value.toFixed(value < 10 ? 1 : 0).replace(/\.0$/, "")} s` : `${Math.round(value / 60)} min`;
}

// A moment: by the clock where there is one, else in seconds of virtual time.
export function moment(atS, beganMs) {
  if (!isKnown(beganMs)) return `${atS.toFixed(atS < 100 ? 2 : 1)} s`;
  const at = new Date(beganMs + 1000 * atS);
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return at.toDateString() === new Date().toDateString() ? time : `${day(at)} ${time}`;
}

const day = (at) => at.toLocaleDateString("en", { month: "short", day: "numeric" });

// The same for an axis whose marks are so many seconds apart.
export function mark(atS, beganMs, stepS) {
  if (!isKnown(beganMs)) return `${Math.round(atS)} s`;
  const at = new Date(beganMs + 1000 * atS + 500);
  if (stepS < 3600) return moment(atS + 0.5, beganMs).split(" ").at(-1);
  return at.getHours() ? `${at.getHours()}:00` : day(at);
}
