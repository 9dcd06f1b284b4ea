// What the signs on the map mean.

import { drawing, element, put } from "./dom.js";
import { DASHES } from "./paths.js";
import { BROKER_LOOKS, LINK_LOOKS, brokerSign, linkSign, pathSign } from "./signs.js";

export function showLegend(place) {
  const line = (sign, words) => element("li", {}, sign, words);
  put(
    place,
    element(
      "ul",
      {},
      ...["up", "suspect", "failed"].map((state) => line(linkSign(state), `link ${LINK_LOOKS[state].word}`)),
      ...["serving", "draining", "lost"].map((state) => line(brokerSign(state), `broker ${BROKER_LOOKS[state].word}`)),
      line(pathSign(0, DASHES[0]), "primary path"),
      line(pathSign(1, DASHES[1]), "redundant path"),
      line(loads(), "wider: higher load"),
      line(reserved(), "stronger: more reserved"),
      line(element("span", {}, "▲"), "slower than usual"),
    ),
  );
}

function reserved() {
  const strengths = [0.4, 0.7, 1];
  const part = (opacity, at) => ["path", { d: `M${1 + 11 * at} 6h10`, stroke: "var(--reserved)", "stroke-width": 4, opacity }];
  return drawing(34, 12, ...strengths.map(part));
}

function loads() {
  return drawing(34, 12, ["path", { d: "M1 6.5 33 3v6L1 7.5z", fill: "var(--link)" }]);
}
