// A test stream: from one broker to another, so that there is something to watch.

import { element, put } from "./dom.js";

export function showStreamForm(place, { picture, act, said }) {
  if (place.querySelector("form.form")) {
    place.querySelector(".said").textContent = said ?? "";
    return; // it is being filled in
  }
  const names = Object.keys(picture.brokers).sort();
  const options = (chosen) => names.map((name) => element("option", { selected: name === chosen }, name));
  const choice = (label, chosen) => element("select", { ariaLabel: label }, ...options(chosen));
  const from = choice("from", names[0]);
  const to = choice("to", names.at(-1));
  const topic = element("input", { value: firstTopic(picture), ariaLabel: "topic" });
  const rate = element("input", { type: "number", min: "1", max: "1000", value: "50", ariaLabel: "messages per second" });
  const start = (event) => {
    event.preventDefault();
    act("stream", { from: from.value, to: to.value, topic: topic.value.trim(), rate: rate.value });
  };
  put(
    place,
    element(
      "form",
      { className: "form", on: { submit: start } },
      element("label", {}, "from a publisher at", from),
      element("label", {}, "to a subscriber at", to),
      element("label", {}, "on the topic", topic),
      element("label", {}, "messages per second", rate),
      element(
        "div",
        { className: "row" },
        element("button", { type: "submit", data: { deed: "stream" } }, "Start"),
        element("button", { type: "button", data: { deed: "hush" }, on: { click: () => act("hush", {}) } }, "Stop all"),
      ),
      element("p", { className: "said", role: "alert" }, said ?? ""),
    ),
  );
}

// One that the first filter of the network file matches.
function firstTopic(picture) {
  const filter = Object.keys(picture.topics).find((name) => !name.startsWith("("));
  return filter ? filter.replace("#", "test").replaceAll("+", "test") : "test/stream";
}
