// The view of a map: which part of the plane is seen, and how near. Dragging, pinching, the wheel, buttons and keys
// move it.

const SCALE_MAX = 60;

export class View {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.width = this.height = 1;
    this.box = [0, 0, 1, 1];
    this.fitted = { scale: 1, x: 0, y: 0 };
    this.wanted = null;
    this.left = 0; // pixels that something else covers
    this.below = 0;
    this.nearer = 1;
    this.moved = [0, 0];
    this.touches = new Map();
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => this.up(event));
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.refit();
  }

  // Show all of these points.
  fit(points) {
    const xs = points.map(([x]) => x);
    const ys = points.map(([, y]) => y);
    this.box = points.length ? [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)] : [0, 0, 1, 1];
    this.refit();
  }

  cover(left, below) {
    if (left === this.left && below === this.below) return;
    [this.left, this.below] = [left, below];
    const before = this.fitted;
    this.refit();
    [this.wanted, this.fitted] = [this.fitted, before];
  }

  // Glide to where everything fits; called before each frame.
  ease(isAtOnce) {
    if (!this.wanted) return;
    const share = isAtOnce ? 1 : 0.25;
    const next = {};
    for (const axis of ["scale", "x", "y"]) {
      const left = this.wanted[axis] - this.fitted[axis];
      next[axis] = Math.abs(left) < 0.5 ? this.wanted[axis] : this.fitted[axis] + share * left;
    }
    this.fitted = next;
    if (Object.keys(next).every((axis) => next[axis] === this.wanted[axis])) this.wanted = null;
    this.changed();
  }

  refit() {
    const [left, top, right, bottom] = this.box;
    const width = this.width - this.left;
    const height = this.height - this.below;
    this.wanted = null;
    const margin = Math.min(90, 0.13 * Math.min(width, height) + 24);
    const scale = Math.min(
      (width - 2 * margin) / Math.max(right - left, 1e-6),
      (height - 2 * margin) / Math.max(bottom - top, 1e-6),
    );
    this.fitted = {
      scale: Math.max(scale, 1e-6),
      x: this.left + width / 2 - (scale * (left + right)) / 2,
      y: height / 2 - (scale * (top + bottom)) / 2,
    };
    this.changed();
  }

  home() {
    this.nearer = 1;
    this.moved = [0, 0];
    this.changed();
  }

  // Show this part of the plane.
  zoomTo([left, top, right, bottom]) {
    const { scale, x, y } = this.fitted;
    const across = Math.max((right - left) * scale, 1);
    const down = Math.max((bottom - top) * scale, 1);
    this.nearer = Math.min(Math.max(Math.min((0.7 * this.width) / across, (0.7 * this.height) / down), 1), SCALE_MAX);
    this.moved = [
      -(((left + right) / 2) * scale + x - this.width / 2) * this.nearer,
      -(((top + bottom) / 2) * scale + y - this.height / 2) * this.nearer,
    ];
    this.changed();
  }

  get toScreen() {
    const { scale, x, y } = this.fitted;
    const [right, down] = this.moved;
    return ([px, py]) => [
      (px * scale + x - this.width / 2) * this.nearer + this.width / 2 + right,
      (py * scale + y - this.height / 2) * this.nearer + this.height / 2 + down,
    ];
  }

  zoom(factor, atX = this.width / 2, atY = this.height / 2) {
    const nearer = Math.min(Math.max(this.nearer * factor, 0.4), SCALE_MAX);
    const by = nearer / this.nearer;
    const [right, down] = this.moved;
    this.moved = [
      atX - this.width / 2 - (atX - this.width / 2 - right) * by,
      atY - this.height / 2 - (atY - this.height / 2 - down) * by,
    ];
    this.nearer = nearer;
    this.changed();
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.offsetX, event.offsetY);
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.touches.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.draggedFar = 0;
  }

  drag(event) {
    const before = this.touches.get(event.pointerId);
    if (!before) return;
    const now = [event.offsetX, event.offsetY];
    if (this.touches.size === 2) {
      const other = [...this.touches].find(([id]) => id !== event.pointerId)[1];
      const far = (one) => Math.hypot(one[0] - other[0], one[1] - other[1]);
      if (far(before) > 0) this.zoom(far(now) / far(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else {
      this.moved = [this.moved[0] + now[0] - before[0], this.moved[1] + now[1] - before[1]];
      this.canvas.classList.add("grabbed");
      this.changed();
    }
    this.draggedFar += Math.hypot(now[0] - before[0], now[1] - before[1]);
    this.touches.set(event.pointerId, now);
  }

  up(event) {
    this.touches.delete(event.pointerId);
    if (!this.touches.size) this.canvas.classList.remove("grabbed");
  }

  // Whether what just ended was a click, and no drag.
  get wasClick() {
    return (this.draggedFar ?? 0) < 5;
  }
}
