// What each state looks like, beside its colour: a dash and a mark for links, a shape for brokers and happenings.

import { drawing } from "./dom.js";

export const LINK_LOOKS = {
  up: { colour: "--link", dash: [], mark: "", word: "up" },
  suspect: { colour: "--warning-ink", dash: [8, 5], mark: "?", word: "suspect" },
  failed: { colour: "--bad", dash: [2, 5], mark: "×", word: "failed" },
  down: { colour: "--bad", dash: [2, 5], mark: "×", word: "no connection" },
  unknown: { colour: "--faint", dash: [1, 6], mark: "", word: "unknown" },
};

// How strongly a link has the colour of reservations, by the share of its rate that they have in either direction.
export function reservedStrength(link) {
  const share = Math.max(...link.ways.map((way) => way.reserved ?? 0));
  return share <= 0 ? 0 : share < 0.25 ? 0.4 : share < 0.5 ? 0.7 : 1;
}

export const BROKER_LOOKS = {
  serving: { colour: "--good", shape: "disc", word: "serving" },
  draining: { colour: "--warning-ink", shape: "half", word: "shutting down" },
  lost: { colour: "--bad", shape: "cross", word: "lost" },
  unknown: { colour: "--faint", shape: "ring", word: "unknown" },
};

const HAPPENING_SHAPES = {
  deed: ["path", { d: "M10 1 5 10h3l-1 7 6-9.5H9.5z" }], // a flash: somebody did it
  link: ["path", { d: "M2 9h5m4 0h5M7 9a2 2 0 1 0 4 0 2 2 0 1 0-4 0", fill: "none", "stroke-width": 2 }],
  route: ["path", { d: "M2 14C8 14 8 4 14 4m-3-3 3.5 3L11 7", fill: "none", "stroke-width": 2 }],
  deadline: ["path", { d: "M9 2a7 7 0 1 0 .01 0M9 5v4.5l3 2", fill: "none", "stroke-width": 2 }],
  broker: ["path", { d: "M3 3h12v12H3z", "stroke-width": 2 }],
};

// The same in words, for those who do not see the sign.
export const HAPPENING_WORDS = {
  deed: "action",
  link: "link",
  route: "route",
  deadline: "deadline",
  broker: "broker",
};

export function happeningSign(happening) {
  const [tag, attributes] = HAPPENING_SHAPES[happening.kind];
  const svg = drawing(18, 18, [tag, { fill: "currentColor", stroke: "currentColor", ...attributes }]);
  svg.classList.add("sign", happening.weight);
  return svg;
}

export function linkSign(state, width = 34) {
  const look = LINK_LOOKS[state];
  const stroke = `var(${look.colour})`;
  const cross = ["path", { d: `M${width / 2 - 4} 2l8 8m0-8-8 8`, stroke, "stroke-width": 2 }];
  return drawing(
    width,
    12,
    ["path", { d: `M1 6h${width - 2}`, stroke, "stroke-width": 2.5, "stroke-dasharray": look.dash.join(" ") }],
    ...(look.mark === "×" ? [cross] : []),
  );
}

export function brokerSign(state) {
  const look = BROKER_LOOKS[state];
  const colour = `var(${look.colour})`;
  const ring = { cx: 9, cy: 9, r: 6, fill: "none", stroke: colour, "stroke-width": 2 };
  const shapes = {
    disc: [["circle", { cx: 9, cy: 9, r: 6, fill: colour }]],
    half: [
      ["circle", ring],
      ["path", { d: "M9 3a6 6 0 0 0 0 12z", fill: colour }],
    ],
    cross: [
      ["rect", { x: 3, y: 3, width: 12, height: 12, fill: "none", stroke: colour, "stroke-width": 2 }],
      ["path", { d: "M6 6l6 6m0-6-6 6", stroke: colour, "stroke-width": 2 }],
    ],
    ring: [["circle", { ...ring, "stroke-dasharray": "2 3" }]],
  };
  const svg = drawing(18, 18, ...shapes[look.shape]);
  svg.classList.add("sign");
  return svg;
}

// Signs on buttons, drawn: not every system has a font with them.
const ICONS = {
  back: "M4 3h2v12H4zM15 3v12L7 9z",
  forth: "M12 3h2v12h-2zM3 3v12l8-6z",
  play: "M5 3l10 6-10 6z",
  pause: "M4 3h4v12H4zM10 3h4v12h-4z",
  fit: "M2 2h5v2H4v3H2zM11 2h5v5h-2V4h-3zM2 11h2v3h3v2H2zM14 11h2v5h-5v-2h3z",
  theme: "M9 2a7 7 0 1 0 0 14zM9 2a7 7 0 0 1 0 14v-2a5 5 0 0 0 0-10z",
};

export function icon(name) {
  return drawing(18, 18, ["path", { d: ICONS[name], fill: "currentColor" }]);
}

export function pathSign(rank, dash) {
  const stroke = `var(--path-${rank})`;
  const width = rank ? 3 : 4;
  return drawing(40, 10, [
    "path",
    { d: "M1 5h38", stroke, "stroke-width": width, "stroke-dasharray": dash.join(" ") },
  ]);
}
