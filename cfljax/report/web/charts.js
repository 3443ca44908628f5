"use strict";
// Charts with axes: lines with bands, dots with whiskers, stacked bars.

function path(points) {
  let text = "", pen = false;
  for (const [x, y] of points) {
    if (!isFinite(x) || !isFinite(y)) { pen = false; continue; }
    text += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  }
  return text;
}
function area(xs, low, high) {
  const there = xs.map((_, i) => i).filter(i => isFinite(low[i]) && isFinite(high[i]));
  if (there.length < 2) return "";
  return path(there.map(i => [xs[i], high[i]])) + path(there.slice().reverse().map(i => [xs[i], low[i]])).replace("M", "L") + "Z";
}
const known = v => v !== null && isFinite(v);
const number = v => v === null ? NaN : v;

// Names beside the ends of the curves, the highest first: shifted a little where two would overlap, left out where that is not enough.
function nameEnds(layer, ends) {
  const taken = [];
  for (const { s, cx, cy } of ends.sort((a, b) => a.cy - b.cy)) {
    const text = shorten(s.name, NAME_ROOM), x = cx + 10, right = x + LETTER * text.length;
    const y = [0, 12, 24].map(by => cy + by).find(y => y > 0 && taken.every(t => Math.abs(t.y - y) > 11 || t.x > right + LETTER || t.right + LETTER < x));
    if (y === undefined) continue;
    taken.push({ x, y, right });
    layer.append(svg("line", { class: "lead", x1: cx + 2, x2: cx + 8, y1: cy, y2: y, stroke: s.shade, "data-line": s.line }), svg("text", { class: "end", x, y: y + 4, "data-line": s.line }, text));
  }
}
const NAME_ROOM = 130;

// Markers, at some of the points of a curve; of curves that are close to each other at different ones.
const FEW_MARKERS = 6;
function drawMarkers(layer, series, s, points) {
  const step = Math.ceil(points.length / FEW_MARKERS), first = Math.floor(series.indexOf(s) * step / series.length);
  points.forEach(([x, y], i) => {
    if (i % step !== first || !isFinite(x) || !isFinite(y)) return;
    const marker = markerAt(s.marker, x, y, s.shade);
    marker.setAttribute("data-line", s.line);
    layer.append(marker);
  });
}

// series: [{name, line (number of the configuration), shade, dash, marker, x: [], m: [], s: [], stops: [x where a run was ended]}]; options: width, height, xlabel, xkind, ykind, limits, ends, worst, changes (x where the data change).
function lineChart(series, options) {
  const all = series.flatMap(s => s.m.flatMap((m, i) => known(m) ? [m - (s.s[i] || 0), m + (s.s[i] || 0)] : []));
  let ys = extent(all, 0.05);
  if (!ys) return null;
  if (options.limits) ys = [Math.max(ys[0], options.limits[0]), Math.min(ys[1], options.limits[1])];
  if (options.zero) ys[0] = Math.min(0, ys[0]);
  let xs = extent(series.flatMap(s => s.x.filter((x, i) => known(s.m[i]))));
  if (options.logx) xs = extent(series.flatMap(s => s.x.filter((x, i) => known(s.m[i]) && x > 0))) || [1, 10];
  const named = options.width >= 480;
  const right = named ? 14 + Math.min(NAME_ROOM, LETTER * Math.max(...series.map(s => s.name.length))) : 12;
  const chart = frame({ ...options, xs, ys, right, left: options.ykind === "percent" ? 42 : 50 });
  const { layer, x, y, box } = chart;
  if (options.worst) layer.append(svg("rect", { x: x(0), y: box.top, width: x(0.1) - x(0), height: box.bottom - box.top, fill: "var(--mark)" }));
  for (const at of options.changes || []) if (at >= xs[0] && at <= xs[1]) {
    layer.append(svg("line", { class: "change", x1: x(at), x2: x(at), y1: box.top, y2: box.bottom, stroke: "var(--soft)", "stroke-width": 1, "stroke-dasharray": "1 3" }));
  }
  const clipped = v => Math.max(box.top, Math.min(box.bottom, v));
  for (const s of series) {
    const px = s.x.map(v => options.logx && !(v > 0) ? NaN : x(v));
    const low = s.m.map((m, i) => clipped(y(number(m) - number(s.s[i])))), high = s.m.map((m, i) => clipped(y(number(m) + number(s.s[i]))));
    const band = area(px, low, high);
    if (band && !options.bare) layer.append(svg("path", { d: band, "data-line": s.line, fill: s.shade, opacity: series.length > 8 ? 0.09 : 0.16 }));
  }
  const ends = [];
  for (const s of series) {
    const points = s.m.map((m, i) => [options.logx && !(s.x[i] > 0) ? NaN : x(s.x[i]), clipped(y(number(m)))]);
    layer.append(svg("path", { d: path(points), "data-line": s.line, fill: "none", stroke: s.shade, "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-dasharray": s.dash }));
    drawMarkers(layer, series, s, points);
    for (const at of s.stops || []) {
      const [cx, cy] = points[s.x.findIndex(v => v >= at)] || [];
      if (isFinite(cx) && isFinite(cy)) layer.append(svg("line", { x1: cx, x2: cx, y1: cy - 5, y2: cy + 5, stroke: s.shade, "stroke-width": 1.6, class: "stop", "data-line": s.line }));
    }
    const good = points.filter(p => isFinite(p[0]) && isFinite(p[1]));
    if (!good.length) continue;
    const [cx, cy] = good[good.length - 1];
    ends.push({ s, cx, cy });
    if (options.ends || good.length === 1) {
      layer.append(svg("circle", { cx, cy, "data-line": s.line, r: 3.6, fill: "var(--card)", stroke: s.shade, "stroke-width": 2 }));
    }
  }
  if (named) nameEnds(layer, ends);
  chart.root.setAttribute("aria-label", said(series, options));
  chart.root.keys = series;
  const ylabel = options.ylabel || options.label;
  chart.root.ylabel = options.ykind === "percent" ? `${ylabel}, %` : ylabel;
  chart.root.rows = [["curve", options.xlabel.replace(", %", ""), options.label, "standard deviation"], ...series.flatMap(s => s.m.map((m, i) => [s.name, s.x[i], m, s.s[i]]))];
  follow(chart, series, options);
  return chart.root;
}

// What a screen reader says of a chart: each curve's last value. The arrow keys read the others.
function said(series, options) {
  const show = TIPS[options.ykind || "plain"];
  const ends = series.map(s => `${s.name} ${show(s.m.filter(known).at(-1) ?? null)}`);
  return `${options.label || ""}, at the end: ${ends.join("; ")}. Arrow keys move along the curves.`;
}

// A vertical line under the pointer, and what the curves are there.
function follow(chart, series, options) {
  const { root, x, y, box } = chart;
  const cursor = svg("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const points = [...new Set(series.flatMap(s => s.x.filter((v, i) => known(v) && known(s.m[i]))))].sort((a, b) => a - b);
  let place = points.length;
  root.setAttribute("tabindex", "0");
  root.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -points.length, End: points.length }[event.key];
    if (event.key === "Escape") leave();
    if (!step || !points.length) return;
    event.preventDefault();
    place = Math.max(0, Math.min(points.length - 1, place + step));
    const seen = root.getBoundingClientRect(), ratio = seen.width / root.viewBox.baseVal.width;
    show(x(points[place]), { clientX: seen.left + x(points[place]) * ratio, clientY: seen.top + 20 });
  });
  root.addEventListener("blur", () => leave());
  const leave = () => { hideTip(); focus(null); cursor.setAttribute("visibility", "hidden"); };
  const show = (at, event, height) => {
    const value = x.back(at);
    const rows = series.map(s => {
      let best = -1;
      s.x.forEach((v, i) => { if (known(s.m[i]) && (best < 0 || Math.abs(v - value) < Math.abs(s.x[best] - value))) best = i; });
      return best < 0 ? null : { s, at: s.x[best], m: s.m[best], d: s.s[best] };
    }).filter(r => r).sort((a, b) => b.m - a.m);
    if (!rows.length) return;
    cursor.setAttribute("x1", at); cursor.setAttribute("x2", at); cursor.setAttribute("visibility", "visible");
    const near = rows.filter(r => Math.abs(y(r.m) - height) < 12).sort((a, b) => Math.abs(y(a.m) - height) - Math.abs(y(b.m) - height));
    focus(near.length ? near[0].s.line : null);
    const tell = TIPS[options.ykind || "plain"], nearest = options.exact ? rows.reduce((a, b) => Math.abs(b.at - value) < Math.abs(a.at - value) ? b : a).at : value;
    const title = options.worst ? `${Math.round(100 * value)} % of the clients` : `${options.xname || options.xlabel} ${TIPS[options.xkind || "plain"](nearest)}`;
    const lines = rows.slice(0, 14).map(r => [r.s.shade, r.s.name, tell(r.m) + (known(r.d) ? " ± " + tell(r.d) : "")]);
    showTip(event, title, rows.length > 14 ? [...lines, [null, `and ${rows.length - 14} more`, ""]] : lines);
  };
  root.append(cursor, svg("rect", {
    x: box.left, y: box.top, width: Math.max(0, box.right - box.left), height: Math.max(0, box.bottom - box.top), fill: "transparent",
    onpointermove: event => {
      const seen = root.getBoundingClientRect(), ratio = root.viewBox.baseVal.width / seen.width;
      show((event.clientX - seen.left) * ratio, event, (event.clientY - seen.top) * ratio);
    },
    onpointerleave: leave,
  }));
}

// rows: [{name, shade, mean, std, seeds: []}] on one horizontal axis.
function dotChart(rows, options) {
  const xs = extent(rows.flatMap(r => [...r.seeds, known(r.mean) ? r.mean - (r.std || 0) : null, known(r.mean) ? r.mean + (r.std || 0) : null]), 0.06);
  if (!xs) return null;
  xs[0] = Math.max(0, xs[0]); xs[1] = Math.min(1, xs[1]);
  const step = Math.max(22, Math.min(38, 230 / rows.length)), chart = rowsFrame(rows, options, xs, step);
  rows.forEach((r, i) => {
    const y = 8 + (i + 0.5) * step, dots = svg("g", { "data-line": r.line });
    if (known(r.std)) dots.append(svg("line", { x1: chart.x(Math.max(xs[0], r.mean - r.std)), x2: chart.x(Math.min(xs[1], r.mean + r.std)), y1: y, y2: y, stroke: r.shade, "stroke-width": 2 }));
    for (const v of r.seeds) dots.append(svg("circle", { cx: chart.x(v), cy: y, r: 3.2, fill: "none", stroke: r.shade, "stroke-width": 1.1, opacity: 0.75 }));
    if (known(r.mean)) dots.append(svg("rect", { x: chart.x(r.mean) - 1.6, y: y - 8, width: 3.2, height: 16, rx: 1, fill: r.shade }));
    dots.append(svg("rect", {
      x: 0, y: y - step / 2, width: options.width, height: step, fill: "transparent", onpointerleave: hideTip,
      onpointermove: event => showTip(event, r.name, [[r.shade, `mean of ${r.seeds.length} run${r.seeds.length === 1 ? "" : "s"}`, percent(r.mean) + (known(r.std) ? ` ± ${percent(r.std)}` : "") + " %"]]),
    }));
    chart.root.append(dots);
  });
  chart.root.rows = [["curve", "mean", "standard deviation", "runs"], ...rows.map(r => [r.name, r.mean, r.std, ...r.seeds])];
  return chart.root;
}

// rows: [{name, parts: [{name, shade, value}]}].
function barChart(rows, options) {
  const most = Math.max(...rows.map(r => r.parts.reduce((a, p) => a + (p.value || 0), 0)));
  if (!(most > 0)) return null;
  const step = Math.max(20, Math.min(36, 230 / rows.length)), chart = rowsFrame(rows, options, [0, most], step);
  rows.forEach((r, i) => {
    let from = 0;
    for (const part of r.parts) {
      const value = part.value || 0, begin = chart.x(from), end = chart.x(from + value);
      chart.root.append(svg("rect", { x: begin, y: 8 + i * step + step * 0.17, width: Math.max(0, end - begin), height: step * 0.66, fill: part.shade }));
      from += value;
    }
    chart.root.append(svg("rect", {
      x: 0, y: 8 + i * step, width: options.width, height: step, fill: "transparent", onpointerleave: hideTip,
      onpointermove: event => showTip(event, r.name, r.parts.map(p => [p.shade, p.name, trim(p.value, 3) + " s"])),
    }));
  });
  chart.root.rows = [["curve", "part", options.xlabel], ...rows.flatMap(r => r.parts.map(p => [r.name, p.name, p.value]))];
  return chart.root;
}
function rowsFrame(rows, options, xs, step) {
  const left = Math.min(options.width * 0.42, 16 + LETTER * Math.max(...rows.map(r => r.name.length)));
  return frame({ ...options, xs, rows, step, left, height: rows.length * step + 44 });
}
