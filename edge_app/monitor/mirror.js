"use strict";
// Shows what /mirror/events tells, five times a second, over the live picture. Nothing is decided here.
const at = (id) => document.getElementById(id);
const GATE = {
  moving: "something moves: looking", keep_alive: "still: looked once more", still: "still: resting",
  paced: "something moves: looking", empty: "nobody: resting",
};
const LOOKING = new Set(["moving", "paced", "keep_alive"]);
const SILENT_MS = 3000, OLD_S = 2, AGAIN_MS = 2000;
let heard = 0;

function watch() { at("video").src = `/mirror.mjpg?${Date.now()}`; }

// Read aloud by screen readers when it changes, and only then.
function say(words) { if (at("label").textContent !== words) at("label").textContent = words; }

function bar(one, named) {
  const row = document.createElement("div"), name = document.createElement("b");
  const meter = document.createElement("meter"), number = document.createElement("span");
  row.className = one.label === named ? "bar named" : "bar";
  name.textContent = one.label;
  meter.value = one.score;
  meter.setAttribute("aria-label", one.label);
  number.textContent = `${Math.floor(100 * one.score)} %`;  // what does not reach 70 % does not say 70 %
  row.append(name, meter, number);
  return row;
}

function show(state) {
  const seen = state.label !== null;
  const bad = !seen && !["MARGINAL", "NO_PART", null].includes(state.reason);
  say(seen ? state.label : state.words);
  at("label").className = seen ? "" : bad ? "bad" : "unsure";
  const words = seen ? `for ${state.stable_s.toFixed(0)} s` : state.detail;
  at("detail").textContent = [words, state.remark].filter(Boolean).join(" \u00b7 ");
  at("bars").replaceChildren(...state.classes.map((one) => bar(one, state.label)));
  const blind = state.no_picture || state.frame_age_s === null || state.frame_age_s > OLD_S;
  const looking = !bad && !blind && (state.gate === null || LOOKING.has(state.gate));
  at("gate-text").textContent = bad || blind ? "sees nothing" : state.gate === null ? "looking at every frame" : GATE[state.gate];
  at("dot").className = looking ? "on" : "";
  at("cost").textContent = `${state.inferences} of ${state.frames} frames inferred, on ${state.plan}`;
  at("simulated").hidden = !state.simulated;
  if (!blind && document.body.classList.contains("blind")) watch();  // the node ends pictures of a camera that is gone
  document.body.classList.toggle("blind", blind);
  at("gone").hidden = !blind;
  at("gone").textContent = state.mode !== "RUNNING" ? `the mirror is ${state.mode}` : "no picture comes from the camera";
}

function lost() {
  document.body.classList.add("blind");
  at("gone").hidden = false;
  at("gone").textContent = "no connection to the mirror's node";
  say("unknown");
  at("label").className = "bad";
  at("detail").textContent = "";
  at("bars").replaceChildren();
  at("gate-text").textContent = "no connection";
  at("dot").className = "";
}

function connect() {
  const events = new EventSource("/mirror/events");
  events.onmessage = (message) => {
    if (performance.now() - heard > SILENT_MS) watch();
    heard = performance.now();
    show(JSON.parse(message.data));
  };
  // A browser gives up after an answer like 503 or 401: begin again.
  events.onerror = () => { if (events.readyState === EventSource.CLOSED) setTimeout(connect, AGAIN_MS); };
}

at("video").onerror = () => setTimeout(watch, AGAIN_MS);
heard = -2 * SILENT_MS;
setInterval(() => { if (performance.now() - heard > SILENT_MS) lost(); }, 500);
connect();
