// The operator page: draws each state that the node sends, and says NO DATA when none comes.
"use strict";

const STALE_MS = 2500;
const SHAPES = {
  RUNNING: "M5 3 21 12 5 21Z",
  READY: "M12 3a9 9 0 1 0 .01 0ZM12 6.500a5.500 5.500 0 1 1-.01 0Z",
  STARTING: "M4 3H20V7L14 12 20 17V21H4V17L10 12 4 7Z",
  HOLD: "M5 3H10V21H5ZM14 3H19V21H14Z",
  FAULT: "M8 2H16L22 8V16L16 22H8L2 16V8ZM10.500 6V14H13.500V6ZM10.500 16V19H13.500V16Z",
  STOPPED: "M4 4H20V20H4Z",
};
const ODD = { HOLD: "odd", STARTING: "odd", READY: "odd", STOPPED: "odd", FAULT: "bad" };
const $ = (id) => document.getElementById(id);
let lastState = null;
let lastAt = 0;
let shownLast = "";
let shownRecent = "";

const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");
const ms = (us) => us === null ? "-" : us < 9950 ? `${(us / 1000).toFixed(1)} ms` : `${number(Math.round(us / 1000))} ms`;
const time = (us) => new Date(us / 1000).toLocaleTimeString("en-GB");
const day = (us) => new Date(us / 1000).toLocaleDateString("en-CA");
const words = (list) => list.filter(Boolean).join(" \u00b7 ");

function text(id, value, style = "") {
  const element = $(id);
  if (element.textContent !== value) element.textContent = value;
  if (element.className !== style) element.className = style;
}

function svg(name, attributes, content) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (content !== undefined) element.textContent = content;
  return element;
}

// UNKNOWN is told from the others without colour.
const hatched = (kind) => kind.toUpperCase() === "UNKNOWN" ? { fill: "url(#hatch)" } : {};

function html(name, style, ...children) {
  const element = document.createElement(name);
  if (style) element.className = style;
  element.append(...children);
  return element;
}

function ago(us) {
  const s = Math.max(0, Math.round(us / 1e6));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(s / 86400)} days`;
}

function drawHead(s) {
  $("mode").className = `mode ${ODD[s.mode] || ""}`;
  $("mode-shape").setAttribute("d", SHAPES[s.mode] || SHAPES.FAULT);
  $("mode-shape").setAttribute("fill-rule", "evenodd");
  text("mode-word", s.mode);
  text("node", s.node);
  text("recipe", `${s.recipe.name} ${s.recipe.rev.replace("sha256:", "").slice(0, 12)}`);
  if (s.link.publish === undefined && s.link.commands === undefined) text("link", "off", "odd-text");
  else if (!s.link.publish) text("link", "\u2298 nobody listens", "odd-text");
  else text("link", words([`${s.link.publish} listening`, s.link.commands && `${s.link.commands} commanding`]));
  const skew = Math.abs(s.t_us / 1000 - Date.now());
  if (skew > 2000) text("clock", `${day(s.t_us)} ${time(s.t_us)} \u00b7 screen ${ago(skew * 1000)} off`, "odd-text");
  else text("clock", `${day(s.t_us)} ${time(s.t_us)}`);
  document.title = `${s.mode} ${s.node}`;
  text("about", words([
    `model ${s.model.name}${s.model.soc ? ` for ${s.model.soc}` : ""}`,
    `edge_app ${s.software}`, `up ${ago(s.uptime_us)}`, s.monitor.missed && `${s.monitor.missed} results not seen by this page`,
    s.monitor.pictures_failed && `${s.monitor.pictures_failed} pictures failed`,
  ]));
  $("simulated").hidden = !s.simulated;
}

function drawAlarm(s) {
  const alarm = s.alarms[0];
  $("alarm").hidden = !alarm;
  if (!alarm) return;
  text("alarm-name", alarm.alarm);
  text("alarm-text", alarm.text);
  text("alarm-since", `since ${time(alarm.since_us)} (${ago(s.t_us - alarm.since_us)})${alarm.acked ? ", acknowledged" : ""}`);
  text("alarm-remedy", alarm.remedy);
  $("alarm").title = `${alarm.text}\n${alarm.remedy}`;
  text("alarm-more", s.alarms.length > 1 ? `and ${s.alarms.length - 1} more` : "");
}

function drawCounts(s) {
  const c = s.counts, sealed = c.pass + c.fail + c.unknown;
  for (const [id, value] of [["pass", c.pass], ["fail", c.fail], ["unknown", c.unknown]]) {
    text(id, number(value));
    $(id).parentElement.classList.toggle("long", value > 9999999);
  }
  text("yield", sealed ? `${(Math.floor(1000 * c.pass / sealed) / 10).toFixed(1)} %` : "-");
  $("fail-box").classList.toggle("some", c.fail > 0);
  $("unknown-box").classList.toggle("some", c.unknown > 0);
  if (c.lost) text("agree", `COUNTS DO NOT AGREE: ${c.lost} triggers have no result`, "bad-text");
  else text("agree", `counts agree with triggers: ${number(c.triggers)} triggers, ${number(sealed)} results, ${c.in_flight} on the way`);
}

function drawTrend(s) {
  const most = Math.max(1, ...s.trend.map(([p, f, u]) => p + f + u));
  const bars = [];
  s.trend.forEach((minute, place) => {
    let top = 100;
    ["pass", "unknown", "fail"].forEach((kind) => {
      const count = minute[{ pass: 0, fail: 1, unknown: 2 }[kind]];
      if (!count) return;
      const height = Math.max(kind === "pass" ? 0 : 2, 96 * count / most);
      top -= height;
      bars.push(svg("rect", { class: kind, ...hatched(kind), x: place * 10 + 1, width: 8, y: top, height }));
    });
  });
  $("trend").replaceChildren(...bars);
  text("trend-top", `highest: ${number(most)} a minute`);
}

function drawPareto(s) {
  const most = Math.max(1, ...s.pareto.map((row) => row.count));
  const rows = s.pareto.slice(0, 6).map((row) => {
    const bar = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" });
    bar.append(svg("rect", { class: row.verdict, ...hatched(row.verdict), width: 100 * row.count / most, height: 10 }));
    const name = html("span", "", `${row.verdict === "FAIL" ? "\u25a0" : "\u25c7"} ${row.cause}`);
    name.title = `${row.verdict} ${row.cause}`;
    return html("li", "", name, bar, html("b", "", number(row.count)));
  });
  const hidden = s.pareto.slice(6).reduce((sum, row) => sum + row.count, 0);
  if (hidden) rows.push(html("li", "", html("span", "", "others"), html("span"), html("b", "", number(hidden))));
  $("pareto").replaceChildren(...(rows.length ? rows : [html("li", "", html("span", "", "nothing"))]));
}

function drawTime(s) {
  const t = s.latency;
  const end = 1.15 * Math.max(t.deadline_us || 0, Math.min(t.worst_us || 0, 3 * (t.deadline_us || t.worst_us || 0)), 1);
  const x = (us) => Math.min(600, 600 * (us || 0) / end);
  const late = (us) => t.deadline_us !== null && us > t.deadline_us ? "late" : "";
  const parts = [
    svg("rect", { class: "track", y: 12, width: 600, height: 6 }),
    svg("rect", { class: `worst ${late(t.worst_us)}`, y: 8, width: x(t.worst_us), height: 14 }),
    svg("rect", { class: `p99 ${late(t.p99_us)}`, y: 8, width: x(t.p99_us), height: 14 }),
    svg("rect", { class: "p50", y: 8, width: x(t.p50_us), height: 14 }),
  ];
  if (t.deadline_us !== null) parts.push(svg("rect", { class: "limit", x: x(t.deadline_us) - 1.5, y: 0, width: 3, height: 30 }));
  $("time").replaceChildren(...parts);
  for (const name of ["p50", "p99", "worst"]) {
    const us = t[`${name}_us`];
    text(name, ms(us), us !== null && late(us) ? "bad-text" : "");
  }
  text("deadline", t.deadline_us === null ? "none" : ms(t.deadline_us));
  text("time-over", t.over ? `of the last ${number(t.over)} results` : "");
}

function drawPlace(s) {
  const normal = ["NORMAL", "CONFIGURED", "NO_NPU"].includes(s.sched.reason);
  text("plan", s.sched.plan, normal ? "" : "odd-text");
  text("power", s.sched.power_mode);
  text("rate", `${Math.round(100 * s.sched.rate)} %`, s.sched.rate < 1 ? "odd-text" : "");
  text("why", words([s.sched.reason, s.sched.detail]));
  $("why").title = s.sched.detail;
  $("node").title = s.node;
  $("recipe").title = s.recipe.rev;
  const groups = [...new Set(s.zones.map((z) => z.group))];
  $("zones").replaceChildren(...groups.map((group) => worst(s.zones.filter((z) => z.group === group))));
  const odd = [...s.degraded, ...(s.camera_trouble ? [`camera: ${s.camera_trouble}`] : [])];
  text("degraded", odd.length ? `not as configured: ${odd.join(", ")}` : "", odd.length ? "odd-text" : "");
}

// Of a group's zones the one that can't be believed, else the one nearest to its trip point.
function worst(zones) {
  const room = (z) => z.temp_c === null ? -Infinity : z.trip_c - z.temp_c;
  const found = zones.reduce((one, other) => room(other) < room(one) ? other : one);
  const row = zone(found);
  row.firstChild.textContent = zones.length > 1 ? `${found.name} +${zones.length - 1}` : found.name;
  row.title = zones.map((z) => `${z.name}: ${z.temp_c === null ? z.state : `${z.temp_c.toFixed(1)} of ${z.trip_c.toFixed(0)} \u00b0C`}`).join("\n");
  return row;
}

function zone(z) {
  const bar = svg("svg", { viewBox: "0 0 110 10", preserveAspectRatio: "none" });
  const end = z.trip_c * 1.05, x = (c) => 110 * Math.max(0, Math.min(1, c / end));
  bar.append(svg("rect", { class: "track", width: 110, height: 10 }));
  if (z.temp_c !== null) {
    const style = z.temp_c >= z.hot_c ? "hot" : z.temp_c >= z.warm_c ? "warm" : "";
    bar.append(svg("rect", { class: `fill ${style}`, width: x(z.temp_c), height: 10 }));
  }
  bar.append(svg("rect", { class: "trip", x: x(z.trip_c) - 1, width: 2, height: 10 }));
  const word = z.temp_c === null ? z.state.toUpperCase() : z.temp_c >= z.hot_c ? "HOT" : z.temp_c >= z.warm_c ? "warm" : "";
  const value = z.temp_c === null ? word : `${z.temp_c.toFixed(0)} of ${z.trip_c.toFixed(0)} \u00b0C ${word}`;
  const style = z.temp_c === null || word === "HOT" ? "bad-text" : word ? "odd-text" : "";
  return html("div", "zone", html("span", "", z.name), bar, html("b", "", html("span", style, value)));
}

function drawLast(s) {
  const last = s.last, key = last ? `${s.epoch}/${last.seq}/${Boolean(last.picture)}` : "";
  if (key === shownLast) return;
  shownLast = key;
  for (const id of ["last-image", "last-boxes"]) $(id).toggleAttribute("hidden", !(last && last.picture));
  if (!last) {
    text("last-word", "none yet");
    for (const id of ["last-detail", "last-where", "last-none"]) text(id, "");
    return;
  }
  text("last-word", `${last.verdict} ${last.reason}`, last.verdict);
  text("last-detail", last.detail || last.boxes.map((box) => box.label).join(", "));
  text("last-where", words([`part ${last.part_id || "-"}`, `trigger ${last.trigger_id}`, `result ${last.seq}`, time(last.t_done_us)]));
  const image = $("last-image"), boxes = $("last-boxes");
  text("last-none", last.picture ? "" : "no picture of this result");
  if (!last.picture) return;
  image.src = `picture/${s.epoch}/${last.seq}.jpg`;
  image.alt = `${last.verdict} ${last.reason}: ${last.detail}`;
  const { width, height } = last.picture, size = Math.max(width, height) / 38;
  boxes.setAttribute("viewBox", `0 0 ${width} ${height}`);
  boxes.replaceChildren(...last.boxes.flatMap((box) => {
    const [x0, y0, x1, y1] = box.box_px;
    const place = { x: x0, y: y0, width: Math.max(1, x1 - x0), height: Math.max(1, y1 - y0) };
    const y = y0 > 1.4 * size ? y0 - 0.3 * size : Math.min(height - 2, y1 + size);
    return [
      svg("rect", { class: "under", ...place }), svg("rect", place),
      svg("text", { x: Math.min(x0, width - 8 * size), y, "font-size": size, "stroke-width": size / 6 }, `${box.label} ${box.score.toFixed(2)}`),
    ];
  }));
}

function drawRecent(s) {
  const key = s.epoch + s.recent.map((r) => `${r.seq}${r.picture ? "p" : ""}`).join();
  if (key === shownRecent) return;
  shownRecent = key;
  const held = document.activeElement.dataset.seq;  // the keyboard stays where it is while new ones come
  $("recent").replaceChildren(...s.recent.map((r) => {
    const figure = html("figure");
    if (r.picture) {
      const image = html("img");
      image.src = `picture/${s.epoch}/${r.seq}.jpg`;
      image.alt = "";
      figure.append(image);
    } else figure.append(html("p", "", "no picture"));
    const what = r.verdict === "FAIL" && r.boxes.length ? r.boxes[0].label : r.reason;
    const item = html("li", r.verdict, figure, html("div", "", html("b", "", r.verdict), what, html("br"), r.part_id || `#${r.trigger_id}`, html("br"), time(r.t_done_us)));
    item.title = words([r.verdict, r.reason, r.detail, time(r.t_done_us)]);
    item.tabIndex = 0;
    item.dataset.seq = r.seq;
    return item;
  }));
  if (held === undefined) return;
  const place = [...$("recent").children].find((item) => item.dataset.seq === held) || $("recent").lastElementChild;
  if (place) place.focus({ preventScroll: true });
}

function draw(s) {
  for (const part of [drawHead, drawAlarm, drawCounts, drawTrend, drawPareto, drawTime, drawPlace, drawLast, drawRecent]) part(s);
}

function watch() {
  const gone = performance.now() - lastAt > STALE_MS;
  document.body.classList.toggle("gone", gone);
  $("nodata").hidden = !gone;
  if (!gone) return;
  document.title = `NO DATA ${lastState ? lastState.node : ""}`;
  text("nodata-since", lastState ? `since ${day(lastState.t_us)} ${time(lastState.t_us)}` : "since this page was opened");
}

function follow() {
  const events = new EventSource("events");
  events.onmessage = (message) => {
    lastState = JSON.parse(message.data);
    lastAt = performance.now();
    draw(lastState);
    watch();
  };
  // A browser gives up after an answer like 503 or 401: begin again.
  events.onerror = () => { if (events.readyState === EventSource.CLOSED) setTimeout(follow, 2000); };
}

follow();
setInterval(watch, 250);
