// Marks on the map: brokers by their state, the source of a topic, and groups of brokers.

import { colours } from "./palette.js";

export function drawBroker(pen, [x, y], size, look) {
  const colour = colours[look.colour];
  pen.lineWidth = 2.5;
  pen.strokeStyle = colours["--sheet"];
  pen.fillStyle = colour;
  pen.beginPath();
  if (look.shape === "cross") {
    pen.rect(x - size, y - size, 2 * size, 2 * size);
    pen.fillStyle = colours["--sheet"];
    pen.fill();
    pen.strokeStyle = colour;
    pen.stroke();
    pen.beginPath();
    const arm = 0.5 * size;
    pen.moveTo(x - arm, y - arm);
    pen.lineTo(x + arm, y + arm);
    pen.moveTo(x + arm, y - arm);
    pen.lineTo(x - arm, y + arm);
    pen.stroke();
    return;
  }
  pen.arc(x, y, size, 0, 2 * Math.PI);
  if (look.shape === "disc") {
    pen.fill();
    pen.stroke();
    return;
  }
  pen.fillStyle = colours["--sheet"];
  pen.fill();
  pen.strokeStyle = colour;
  if (look.shape === "ring") pen.setLineDash([2, 3]);
  pen.stroke();
  pen.setLineDash([]);
  if (look.shape === "half") {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.arc(x, y, size, Math.PI / 2, -Math.PI / 2);
    pen.fill();
  }
}

// A triangle inside: from here it goes out.
export function drawSource(pen, [x, y], size) {
  pen.fillStyle = colours["--sheet"];
  pen.beginPath();
  pen.moveTo(x + 0.55 * size, y);
  pen.lineTo(x - 0.35 * size, y - 0.5 * size);
  pen.lineTo(x - 0.35 * size, y + 0.5 * size);
  pen.closePath();
  pen.fill();
}

// A group of brokers: a square, the larger the more there are, with their number.
export function drawGroup(pen, [x, y], size, { count, state }, font) {
  pen.beginPath();
  pen.roundRect(x - size, y - size, 2 * size, 2 * size, 7);
  pen.fillStyle = colours["--sheet"];
  pen.fill();
  pen.strokeStyle = colours[{ serving: "--good", lost: "--bad" }[state] ?? "--warning-ink"];
  pen.lineWidth = 3;
  if (state !== "serving") pen.setLineDash([5, 3]);
  pen.stroke();
  pen.setLineDash([]);
  pen.fillStyle = colours["--text"];
  pen.font = `650 ${size < 12 ? 10 : 13}px ${font}`;
  pen.fillText(String(count), x, y + 0.5);
}

// Half of its width; on a narrow map it is smaller.
export const groupSize = (count, width) => Math.min(26, 11 + 1.6 * Math.sqrt(count)) * (width < 600 ? 0.55 : 1);
