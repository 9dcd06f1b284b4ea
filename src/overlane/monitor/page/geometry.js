// Boxes and lines in the plane of the map.

export function overlaps([x1, y1, width1, height1], [x2, y2, width2, height2]) {
  return x1 < x2 + width2 && x2 < x1 + width1 && y1 < y2 + height2 && y2 < y1 + height1;
}

// Whether a line passes through a box: what is left of it after cutting it off at each side.
export function crosses([x1, y1, x2, y2], [left, top, width, height]) {
  let [from, to] = [0, 1];
  for (const [start, step, low, high] of [
    [x1, x2 - x1, left, left + width],
    [y1, y2 - y1, top, top + height],
  ]) {
    if (step === 0 && (start < low || start > high)) return false;
    if (step === 0) continue;
    const [one, other] = [(low - start) / step, (high - start) / step];
    from = Math.max(from, Math.min(one, other));
    to = Math.min(to, Math.max(one, other));
  }
  return from <= to;
}

// A point beside the middle of a line.
export function beside([x1, y1], [x2, y2], far, share) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const step = (far * (x2 >= x1 ? 1 : -1)) / (Math.hypot(dx, dy) || 1);
  return [x1 + dx * share + dy * step, y1 + dy * share - 0.6 * dx * step];
}

export function distance(x, y, [x1, y1], [x2, y2]) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const share = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - x1 - share * dx, y - y1 - share * dy);
}
