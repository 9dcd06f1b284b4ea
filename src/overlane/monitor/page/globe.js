// What lies under a geographic map: land, lakes, and a grid of degrees.

import { LAKES, LANDS } from "./land.js";

export function drawGlobe(canvas, projection, toScreen, colours) {
  canvas.lineWidth = 1;
  canvas.lineJoin = "round";
  canvas.strokeStyle = colours["--shore"];
  canvas.fillStyle = colours["--land"];
  for (const land of LANDS) shape(canvas, projection, toScreen, land);
  canvas.fillStyle = colours["--sea"];
  for (const lake of LAKES) shape(canvas, projection, toScreen, lake);
  canvas.strokeStyle = colours["--grid"];
  canvas.beginPath();
  for (let longitude = -180; longitude < 180; longitude += 10) meridian(canvas, projection, toScreen, longitude);
  for (let latitude = -80; latitude <= 80; latitude += 10) parallel(canvas, projection, toScreen, latitude);
  canvas.stroke();
}

function meridian(canvas, projection, toScreen, longitude) {
  trail(canvas, toScreen, Array.from({ length: 33 }, (_, step) => projection.at(longitude, -80 + 5 * step)));
}

function parallel(canvas, projection, toScreen, latitude) {
  trail(canvas, toScreen, Array.from({ length: 73 }, (_, step) => projection.at(-180 + 5 * step, latitude)));
}

function trail(canvas, toScreen, points) {
  let isDown = false;
  for (const point of points) {
    if (point) canvas[isDown ? "lineTo" : "moveTo"](...toScreen(point));
    isDown = point !== null;
  }
}

// Round at its corners: through the middles between its points, bent towards them.
function shape(canvas, projection, toScreen, outline) {
  const points = outline
    .map(([longitude, latitude]) => projection.at(longitude, latitude))
    .filter(Boolean)
    .map(toScreen);
  if (points.length < 3) return;
  const middle = (one, other) => [(one[0] + other[0]) / 2, (one[1] + other[1]) / 2];
  canvas.beginPath();
  canvas.moveTo(...middle(points.at(-1), points[0]));
  points.forEach((point, at) => canvas.quadraticCurveTo(...point, ...middle(point, points[(at + 1) % points.length])));
  canvas.closePath();
  canvas.fill();
  canvas.stroke();
}
