// Small charts of how something went: lines over time, stepwise, with the greatest value named and a mark at the moment
// that is looked at.

import { isKnown } from "./format.js";
import { colours } from "./palette.js";

// lines: [{ points: [[time, value]], colour, dash }]; bound: a value to be drawn across, such as a deadline.
export function drawChart(canvas, { lines, fromS, untilS, atS, least = 0, most = null, bound = null, named }) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 300;
  const height = canvas.clientHeight || 54;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const values = lines.flatMap((line) => line.points.map((point) => point[1])).filter(isKnown);
  const greatest = Math.max(0, ...values, bound ?? 0);
  const top = most ?? (greatest > 0 ? greatest * 1.15 : 1);
  const x = (time) => ((time - fromS) / Math.max(untilS - fromS, 1e-6)) * width;
  const y = (value) => height - 3 - ((value - least) / (top - least || 1)) * (height - 8);
  pen.fillStyle = colours["--ground"];
  pen.beginPath();
  pen.roundRect(0, 0, width, height, 6);
  pen.fill();
  if (bound !== null && bound <= top) {
    pen.strokeStyle = colours["--faint"];
    pen.setLineDash([3, 3]);
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, y(bound));
    pen.lineTo(width, y(bound));
    pen.stroke();
    pen.setLineDash([]);
  }
  for (const { points, colour, dash = [], fill = false } of lines) {
    const path = new Path2D();
    let before = null;
    for (const [time, value] of points) {
      if (!isKnown(value)) {
        if (before !== null) path.lineTo(x(time), y(before));
        before = null;
        continue;
      }
      if (before === null) path.moveTo(x(time), y(value));
      else {
        path.lineTo(x(time), y(before));
        path.lineTo(x(time), y(value));
      }
      before = value;
    }
    pen.strokeStyle = colours[colour];
    pen.lineWidth = 1.75;
    pen.setLineDash(dash);
    pen.lineJoin = "round";
    pen.stroke(path);
    pen.setLineDash([]);
    const known = points.filter((point) => isKnown(point[1]));
    if (fill && known.length) {
      path.lineTo(x(known.at(-1)[0]), height);
      path.lineTo(x(known[0][0]), height);
      pen.globalAlpha = 0.12;
      pen.fillStyle = colours[colour];
      pen.fill(path);
      pen.globalAlpha = 1;
    }
  }
  if (atS !== undefined && atS < untilS - 1e-6 && atS >= fromS) {
    pen.strokeStyle = colours["--text"];
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x(atS), 0);
    pen.lineTo(x(atS), height);
    pen.stroke();
  }
  if (named && values.length) {
    const text = named(most === null ? greatest : 1);
    pen.font = '10px system-ui, "DejaVu Sans", sans-serif';
    pen.textAlign = "left";
    pen.textBaseline = "top";
    pen.globalAlpha = 0.75;
    pen.fillStyle = colours["--ground"];
    pen.fillRect(3, 2, pen.measureText(text).width + 6, 13);
    pen.globalAlpha = 1;
    pen.fillStyle = colours["--soft"];
    pen.fillText(text, 6, 4);
  }
}
