// The track of time: the moments that are known, what happened when, how much was in time, and where one is.

import { mark, moment } from "./format.js";
import { colours } from "./palette.js";

const LIVE_S = 600; // of a long past the last ten minutes
const SHORTEST_S = 60;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
const WEIGHTS = { bad: "--bad", warning: "--warning-ink", good: "--good", note: "--accent" };

export class Track {
  constructor(canvas, slider, sought) {
    this.canvas = canvas;
    this.slider = slider;
    slider.addEventListener("input", () => sought(Number(slider.value)));
    new ResizeObserver(() => this.last && this.draw(...this.last)).observe(canvas);
  }

  span(past) {
    const untilS = past.head.until_s ?? past.lastS;
    const fromS = past.head.is_live ? Math.max(past.firstS, untilS - LIVE_S) : past.firstS;
    return [fromS, Math.max(untilS, fromS + (past.head.is_live ? SHORTEST_S : 1))];
  }

  draw(past, player) {
    this.last = [past, player];
    const [fromS, untilS] = this.span(past);
    this.slider.min = fromS;
    this.slider.max = untilS;
    this.slider.value = player.atS;
    this.slider.setAttribute("aria-valuetext", moment(player.atS, past.head.began_ms));
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = (atS) => 7 + ((atS - fromS) / (untilS - fromS)) * (width - 14);
    this.drawAxis(pen, past, x, fromS, untilS, width, height);
    for (const happening of past.happenings) {
      if (happening.at_s >= fromS && happening.at_s <= untilS) drawHappening(pen, happening, x(happening.at_s), 13);
    }
    this.drawCursor(pen, x(Math.min(player.atS, untilS)), height);
  }

  drawAxis(pen, past, x, fromS, untilS, width, height) {
    pen.fillStyle = colours["--ground"];
    pen.beginPath();
    pen.roundRect(0, 3, width, 21, 6);
    pen.fill();
    pen.fillStyle = colours["--accent-soft"];
    pen.beginPath();
    const left = x(Math.max(fromS, past.firstS)) - 4;
    pen.roundRect(left, 3, x(Math.min(past.lastS, untilS)) + 4 - left, 21, 6);
    pen.fill();
    const wanted = ((untilS - fromS) * 85) / Math.max(width, 1);
    const step = STEPS_S.find((one) => one >= wanted) ?? 86_400;
    pen.fillStyle = colours["--soft"];
    pen.strokeStyle = colours["--line"];
    pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
    pen.textBaseline = "alphabetic";
    const offset = past.head.began_ms === null ? 0 : (past.head.began_ms / 1000) % step;
    for (let at = Math.ceil((fromS + offset) / step) * step - offset; at <= untilS; at += step) {
      const label = mark(at, past.head.began_ms, step);
      pen.textAlign = x(at) < 30 ? "left" : x(at) > width - 30 ? "right" : "center";
      pen.fillText(label, x(at), height - 4);
      pen.beginPath();
      pen.moveTo(x(at), 25);
      pen.lineTo(x(at), 30);
      pen.stroke();
    }
  }

  drawCursor(pen, x, height) {
    pen.strokeStyle = colours["--text"];
    pen.fillStyle = colours["--text"];
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, 29);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x - 5, 0);
    pen.lineTo(x + 5, 0);
    pen.lineTo(x, 7);
    pen.closePath();
    pen.fill();
  }
}

// Each kind has its shape: a deed is a diamond, a broker a square, a link a bar, a route a dot, a deadline a ring.
function drawHappening(pen, happening, x, y) {
  pen.fillStyle = pen.strokeStyle = colours[WEIGHTS[happening.weight]];
  pen.beginPath();
  switch (happening.kind) {
    case "deed":
      pen.moveTo(x, y - 9);
      pen.lineTo(x + 6, y);
      pen.lineTo(x, y + 9);
      pen.lineTo(x - 6, y);
      pen.closePath();
      pen.fillStyle = colours["--text"];
      pen.fill();
      break;
    case "broker":
      pen.fillRect(x - 4.5, y - 4.5, 9, 9);
      break;
    case "link":
      pen.fillRect(x - 1.75, y - 7, 3.5, 14);
      break;
    case "deadline":
      pen.arc(x, y, 4, 0, 2 * Math.PI);
      pen.lineWidth = 2;
      pen.stroke();
      break;
    default:
      pen.arc(x, y, 3.5, 0, 2 * Math.PI);
      pen.fill();
  }
}
