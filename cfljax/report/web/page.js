"use strict";
// The page: which figures there are, what filters them, and when they are redrawn.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { on: new Set(data.configs.map((_, i) => i)), quantity: data.score, own: null, final: Object.keys(data.final)[0], sort: null };
const shares = data.score === "accuracy" ? [0, 1] : null;  // other scores may be negative
const isLive = document.getElementById("live") !== null;  // of a sweep that is being computed
// A line's marker: one of the shapes, as the figures for papers have them.
const markerOf = i => data.configs[i].marker;
const shadeOf = i => `var(--c${data.configs[i].colour})`;
const dashOf = i => DASHES[data.configs[i].dash];
const visible = () => data.configs.map((_, i) => i).filter(i => state.on.has(i));
// What numbers are called, as the engine and the methods declare it: [words, unit] of the history, of methods' own, of the table.
const quantityOf = (kind, name) => data.names[kind][name] || [name, ""];
const kindOf = (kind, name) => ({ share: "percent", bytes: "bytes" })[quantityOf(kind, name)[1]] || "plain";

function bandSeries(table, x) {
  return visible().filter(i => table[i]).map(i => ({ name: data.configs[i].name, line: i, shade: shadeOf(i), dash: dashOf(i), marker: markerOf(i), stops: x ? [] : data.configs[i].stopped, ...table[i], x: x ? x(i, table[i]) : table[i].x }));
}
const nothing = text => tag("p", { class: "nothing" }, text);
const tall = (width, wide) => Math.round(Math.max(210, Math.min(wide ? 380 : 300, width * (wide ? 0.4 : 0.62))));

function overRounds(table, kind, name, width, wide, extra) {
  const series = bandSeries(table || []), changes = [...new Set(visible().flatMap(i => data.changes[i]))];
  const chart = series.length && lineChart(series, { width, height: tall(width, wide), xlabel: "round", changes, ykind: kindOf(kind, name), limits: kindOf(kind, name) === "percent" ? shares : null, exact: true, label: quantityOf(kind, name)[0], ...extra });
  return chart || nothing("Nothing to draw: no selected run has these numbers.");
}
function choice(label, kind, options, current, change) {
  const select = tag("select", { onchange: event => { change(event.target.value); draw(); } });
  for (const name of options) select.append(tag("option", name === current ? { value: name, selected: "" } : { value: name }, quantityOf(kind, name)[0]));
  return tag("div", { class: "choices" }, tag("label", {}, label + " ", select));
}
function panels(list, width, least, one, missing) {
  const shown = list.filter(p => state.on.has(p.config));
  if (!shown.length) return nothing(list.length ? "None of the selected methods has one." : missing);
  const columns = Math.max(1, Math.min(shown.length, Math.floor((width + 18) / (least + 18)))), each = Math.min(420, Math.floor((width - 18 * (columns - 1)) / columns));
  const grid = tag("div", { class: "panels" });
  grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  for (const p of shown) {
    const picture = one(p, each) || nothing("Nothing finite to draw.");
    grid.append(tag("div", { class: "panel" }, tag("h4", {}, data.configs[p.config].name + " ", tag("small", {}, [p.name, `seed ${p.seed}`, p.about].filter(t => t).join(", "))), picture));
  }
  return grid;
}

function against(width, x, options, missing) {
  const table = data.history[data.score] || [], series = bandSeries(table, x).filter(s => s.x).map(s => ({ ...s, x: s.x.slice(1), m: s.m.slice(1), s: s.s.slice(1) }));  // what is done before round 1 counts there
  const chart = series.length && lineChart(series, { width, height: tall(width), ykind: "percent", limits: shares, ends: true, ylabel: data.score, ...options });
  return chart || nothing(missing || "Nothing to draw: no selected run has this score.");
}

const FIGURES = {
  curves: width => [
    choice("Show", "history", Object.keys(data.history), state.quantity, v => { state.quantity = v; }),
    overRounds(data.history[state.quantity], "history", state.quantity, width, true),
    visible().some(i => data.changes[i].length) ? tag("p", { class: "notes" }, "Dotted lines: rounds from which clients are in other groups (data.drift).") : "",
  ],
  methods: width => {
    const rows = visible().map(i => ({ name: data.configs[i].name, line: i, shade: shadeOf(i), ...data.final[state.final][i] })).filter(r => r.seeds.length);
    const chart = rows.length && dotChart(rows, { width, xlabel: `${quantityOf("final", state.final)[0]}, %`, xkind: "percent", label: `${data.score} per method` });
    return [choice("Show", "final", Object.keys(data.final), state.final, v => { state.final = v; }), chart || nothing("Nothing to draw: no selected run ended well.")];
  },
  clients: width => {
    const series = bandSeries(data.clients, (i, band) => band.x);
    return [series.length && lineChart(series, { width, height: tall(width), xlabel: "share of the clients, %", xkind: "percent", ykind: "percent", limits: shares, worst: true, bare: series.length > 6, ylabel: data.score, label: `${data.score} per client` }) || nothing("Nothing to draw: no client had test samples.")];
  },
  newcomers: width => {
    const series = bandSeries(data.newcomers, (i, band) => band.x);
    return [series.length && lineChart(series, { width, height: tall(width), xlabel: "local steps of a new client", ykind: "percent", limits: shares, ends: true, exact: true, ylabel: data.score, label: `${data.score} of new clients` }) || nothing("Nothing to draw: no run has new clients (data.new_clients).")];
  },
  bytes: width => [against(width, (i, band) => (data.history.bytes || [])[i] ? (data.history.bytes[i].m) : null, { xkind: "bytes", xlabel: "sent", label: `${data.score} against bytes` })],
  clock: width => [against(width, (i, band) => (data.history.clock_s || [])[i] ? data.history.clock_s[i].m : null, { xlabel: "simulated seconds", label: `${data.score} against simulated time` }, "Nothing to draw: no run has a simulated clock (train.clock).")],
  waited: width => {
    const rows = visible().filter(i => data.waited[i].length).map(i => ({ name: data.configs[i].name, parts: data.waited[i].map((value, k) => ({ name: `cluster ${k}`, shade: `var(--c${k % 8})`, value })) }));
    return [rows.length && barChart(rows, { width, xlabel: "simulated seconds", label: "waiting" }) || nothing("Nothing to draw: no run has a simulated clock (train.clock) and clusters.")];
  },
  seconds: width => [against(width, (i, band) => {
    const last = band.x[band.x.length - 1];
    return data.seconds[i] === null ? null : band.x.map(r => data.time[i][0] + (last > 0 ? r / last * data.seconds[i] : 0));
  }, { xlabel: "seconds", label: `${data.score} against seconds` })],
  clusters: width => [overRounds(data.clusters, "history", "clusters", width, false, { zero: true })],
  assignment: width => [
    panels(data.pictures, width, 230, assignment, "Nothing to draw: no run has clusters that differ, or labels were not kept."),
    data.trivial.length ? tag("p", { class: "notes" }, `Without a picture: ${data.trivial.join("; ")}.`) : "",
  ],
  agreement: width => {
    const shown = data.agreements.map(each => ({ ...each, kept: each.members.map((_, i) => i).filter(i => state.on.has(each.members[i])) })).filter(each => each.kept.length);
    if (!shown.length) return [nothing("Nothing to draw: no two runs have clusters that differ, or labels were not kept.")];
    return shown.flatMap(each => [
      each.heading ? tag("h4", {}, each.heading) : "",
      agreement(each.kept.map(i => data.configs[each.members[i]].name), each.kept.map(i => each.kept.map(j => each.table[i][j])), width),
    ]);
  },
  groups: width => [panels(data.groups, width, 230, assignment, "Nothing to draw: no run's clients change their groups (data.drift), or labels were not kept.")],
  mixture: width => [panels(data.mixtures, width, 230, assignment, "Nothing to draw: no method of this report gives its clients mixtures of models.")],
  confusion: width => [panels(data.confusions, width, 190, confusion, "Nothing to draw: the true groups are unknown, or no run has clusters that differ.")],
  own: width => {
    const names = Object.keys(data.own);
    if (!names.length) return [nothing("Nothing to draw: no method of this report keeps diagnostics of its own.")];
    state.own = state.own || names[0];
    return [choice("Show", "own", names, state.own, v => { state.own = v; }), overRounds(data.own[state.own], "own", state.own, width)];
  },
  time: width => {
    const parts = [["set up", "var(--c2)"], ["compile", "var(--c7)"], ["train", "var(--c0)"], ["evaluate", "var(--c4)"]];
    const rows = visible().map(i => ({ name: data.configs[i].name, parts: parts.map(([name, shade], k) => ({ name, shade, value: data.time[i][k] })) }));
    const keys = tag("div", { class: "keys" }, ...parts.map(([name, shade]) => tag("span", {}, tag("i", { style: { background: shade } }), name)));
    return [keys, rows.length && barChart(rows, { width, xlabel: "seconds per run", label: "time" }) || nothing("Nothing to draw: no seconds were recorded.")];
  },
};

// A line lists what there is nothing for; a pointer on a name says why.
function settle() {
  const missing = [...document.querySelectorAll("figure")].filter(figure => !figure.querySelector(".plot svg"));
  for (const figure of missing) figure.classList.add("empty");
  const names = missing.map((figure, i) => [i ? " · " : "No data for: ", tag("span", { title: (figure.querySelector(".nothing") || figure).textContent }, figure.querySelector("h3").textContent)]);
  document.getElementById("missing").append(...names.flat());
  for (const figure of document.querySelectorAll("figure")) figure.querySelector("figcaption").prepend(savers(figure));
  draw();
}

function draw() {
  hideTip();
  for (const [name, build] of Object.entries(FIGURES)) {
    const figure = document.getElementById("fig-" + name);
    let plot = figure.querySelector(".plot");
    if (!plot) figure.append(plot = tag("div", { class: "plot" }));
    const width = Math.max(200, Math.floor(plot.clientWidth));
    plot.replaceChildren(...build(width).filter(part => part));
  }
  for (const button of document.querySelectorAll("#legend [data-config]")) button.setAttribute("aria-pressed", state.on.has(Number(button.dataset.config)));
  remember();
}

// What the reader chose stands in the address, by names: a reload keeps it, a link shares it, and methods that come later are not confused.
const details = () => [...document.querySelectorAll("details")].map(each => [each.querySelector("summary").textContent, each]);
const opened = new Map(details().map(([name, each]) => [name, each.open]));
function remember() {
  const chosen = new URLSearchParams(), names = data.configs.map(config => config.name), off = names.filter((_, i) => !state.on.has(i));
  if (2 * off.length <= names.length) for (const name of off) chosen.append("hide", name);
  else for (const name of state.on.size ? visible().map(i => names[i]) : [""]) chosen.append("only", name);
  if (state.quantity !== data.score) chosen.set("curve", state.quantity);
  if (state.final !== Object.keys(data.final)[0]) chosen.set("accuracy", state.final);
  if (state.own && state.own !== Object.keys(data.own)[0]) chosen.set("own", state.own);
  if (state.sort) chosen.set("sort", state.sort);
  for (const [name, each] of details()) if (each.open !== opened.get(name)) chosen.append("toggle", name);
  if (chosen.toString() || location.hash) history.replaceState(null, "", "#" + chosen);
}
function recall() {
  const chosen = new URLSearchParams(location.hash.slice(1)), hide = chosen.getAll("hide"), only = chosen.getAll("only");
  const known = (key, table, usual) => Object.hasOwn(table, chosen.get(key) ?? "") ? chosen.get(key) : usual;
  state.on = new Set(data.configs.map((_, i) => i).filter(i => only.length ? only.includes(data.configs[i].name) : !hide.includes(data.configs[i].name)));
  state.quantity = known("curve", data.history, data.score);
  state.final = known("accuracy", data.final, Object.keys(data.final)[0]);
  state.own = known("own", data.own, null);
  state.sort = chosen.get("sort");
  for (const [name, each] of details()) each.open = opened.get(name) !== chosen.getAll("toggle").includes(name);
}

const keyOf = i => svg("svg", { width: 22, height: 10 }, svg("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: shadeOf(i), "stroke-width": 2, "stroke-dasharray": dashOf(i) }), markerAt(markerOf(i), 11, 5, shadeOf(i)));

function legend() {
  const nav = document.getElementById("legend");
  if (!data.configs.length) { nav.remove(); return; }
  const everything = () => { state.on = new Set(data.configs.map((_, i) => i)); draw(); };
  data.configs.forEach((config, i) => nav.append(tag("button", {
    type: "button", "data-config": i, "aria-pressed": "true", title: "Click: show or hide. Double click, or the key o: only this one.",
    onclick: () => { if (state.on.has(i)) state.on.delete(i); else state.on.add(i); draw(); },
    ondblclick: () => { state.on = new Set([i]); draw(); },
    onpointerenter: () => focus(i), onpointerleave: () => focus(null), onfocus: () => focus(i), onblur: () => focus(null),
    onkeydown: event => { if (event.key === "o") { state.on = new Set([i]); draw(); } },
  }, keyOf(i), tag("span", {}, config.name))));
  nav.append(tag("button", { type: "button", class: "plain", onclick: everything }, "all"), tag("button", { type: "button", class: "plain", onclick: () => { state.on = new Set(); draw(); } }, "none"));
  for (const each of document.querySelectorAll("tr.waiting th")) nav.append(tag("button", { type: "button", disabled: "" }, tag("span", {}, `${each.firstChild.textContent} – ${each.querySelector("small").textContent}`)));
}

// Click on a head sorts the rows of each block by that column.
function sortable(table) {
  [...table.querySelectorAll("thead button")].forEach((button, column) => button.addEventListener("click", () => {
    const down = button.closest("th").getAttribute("aria-sort") !== "descending";
    state.sort = (down ? "-" : "") + button.textContent;
    remember();
    for (const head of table.querySelectorAll("thead th")) head.removeAttribute("aria-sort");
    button.closest("th").setAttribute("aria-sort", down ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter(row => !row.querySelector(".block"));
      const key = row => { const v = row.cells[column].dataset.value; return v === undefined ? row.cells[column].textContent : v === "" ? -Infinity : Number(v); };
      rows.sort((a, b) => { const [x, y] = [key(a), key(b)]; return (x < y ? -1 : x > y ? 1 : 0) * (typeof x === "number" && down ? -1 : 1); });
      body.append(...rows);
    }
  }));
  const wanted = state.sort, chosen = [...table.querySelectorAll("thead button")].find(button => button.textContent === (wanted || "").replace(/^-/, ""));
  state.sort = null;
  while (chosen && state.sort !== wanted) chosen.click();
}

// The words are selected, too, for browsers that let no page copy.
function copy(button) {
  const words = document.querySelector(button.dataset.copy);
  getSelection().selectAllChildren(words);
  if (navigator.clipboard) navigator.clipboard.writeText(words.textContent).then(() => { button.textContent = "copied"; }, () => {});
}

// The page of a sweep that is being computed loads itself again, but not under the reader's hands.
const EVERY = 10_000, HANDS_OFF = 3_000, LONG_AGO = 900;
function keepUp() {
  if (!isLive) return;
  const written = document.querySelector("#live time"), loaded = Date.now();
  let touched = 0;
  for (const kind of ["pointerdown", "keydown", "wheel"]) addEventListener(kind, () => { touched = Date.now(); }, { passive: true });
  setInterval(() => {
    const age = Math.round(Date.now() / 1000 - Number(written.dataset.written));
    const ago = age < 120 ? `${age} s` : `${Math.round(age / 60)} min`;
    written.textContent = `${ago} ago${age > LONG_AGO ? ": has the sweep been stopped?" : ""}`;
    if (Date.now() - loaded > EVERY && Date.now() - touched > HANDS_OFF) location.reload();
  }, 1000);
}

legend();
recall();
draw();
settle();
keepUp();
for (const table of document.querySelectorAll("#comparison table")) sortable(table);
for (const each of document.querySelectorAll("[data-of]")) each.append(keyOf(Number(each.dataset.of)));
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
let width = innerWidth;
addEventListener("hashchange", () => { if (location.hash.includes("=") || location.hash.length < 2) { recall(); draw(); } });
for (const [, each] of details()) each.addEventListener("toggle", remember);
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.documentElement.dataset.ready = "yes";
