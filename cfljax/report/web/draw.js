"use strict";
// Small helpers for SVG: elements, scales, ticks, axes. Texts are always set as text, never as markup.
addEventListener("error", event => { document.documentElement.dataset.error = event.message; });
const SVG = "http://www.w3.org/2000/svg";

function make(space, name, attributes, children) {
  const node = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (key === "style") Object.assign(node.style, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  for (const child of children) if (child !== null) node.append(child);
  return node;
}
const svg = (name, attributes, ...children) => make(SVG, name, attributes, children);
const tag = (name, attributes, ...children) => make(null, name, attributes, children);

function colour(index) {
  if (index < 0) return "var(--none)";
  if (index < 8) return `var(--c${index})`;
  return `hsl(${Math.round(index * 137.508) % 360} 55% ${[48, 62, 38][index % 3]}%)`;
}
const DASHES = [null, "6 3", "2 2.5", "9 3 2 3"];

// The shapes of markers as corners around (0, 0): circle, square, triangle, diamond, triangle down, plus, cross, star.
const corners = (count, turn, inner) => Array.from({ length: inner ? 2 * count : count }, (_, i) => {
  const angle = turn + 2 * Math.PI * i / (inner ? 2 * count : count), radius = inner && i % 2 ? inner : 1;
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
});
const QUARTER = Math.PI / 2, ARM = 0.36;
const PLUS = [0, 1, 2, 3].flatMap(k => [[1, -ARM], [1, ARM], [ARM, ARM]].map(([x, y]) => [[x, y], [-y, x], [-x, -y], [y, -x]][k]));
const turned = (points, angle) => points.map(([x, y]) => [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle)]);
const SHAPES = [corners(16, 0), corners(4, QUARTER / 2), corners(3, -QUARTER), corners(4, 0), corners(3, QUARTER), PLUS, turned(PLUS, QUARTER / 2), corners(5, -QUARTER, 0.45)];
const MARKER_SIZE = 3.9;
function markerAt(marker, x, y, shade) {
  const points = SHAPES[marker].map(([dx, dy]) => `${(x + MARKER_SIZE * dx).toFixed(1)},${(y + MARKER_SIZE * dy).toFixed(1)}`).join(" ");
  return svg("polygon", { points, fill: shade, stroke: "none" });
}

function bytesOf(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

// Numbers for people.
function trim(value, digits) {
  if (value === null || !isFinite(value)) return "–";
  const text = Number(value.toPrecision(digits || 4));
  return Math.abs(text) >= 1e5 || (text !== 0 && Math.abs(text) < 1e-3) ? text.toExponential().replace("e+", "e") : String(text);
}
function metric(value) {
  if (value === null || !isFinite(value)) return "–";
  for (const [size, letter] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (Math.abs(value) >= size) return trim(value / size, 3) + " " + letter;
  return trim(value, 3) + " B";
}
const percent = value => value === null || !isFinite(value) ? "–" : (100 * value).toFixed(1);
const FORMATS = { percent: v => trim(100 * v, 4), bytes: metric, plain: v => trim(v, 4) };
const TIPS = { percent: v => percent(v) + " %", bytes: metric, plain: v => trim(v, 4) };

function ticks(low, high, count, whole) {
  const span = high - low || 1, raw = span / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(raw));
  const steps = [1, 2, 2.5, 5, 10].map(m => m * power).filter(s => !whole || Number.isInteger(s));
  const step = steps.find(s => s >= raw * 0.999) || 1;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}
function logTicks(low, high) {
  const found = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) if (10 ** e >= low * 0.999 && 10 ** e <= high * 1.001) found.push(10 ** e);
  return found.length > 1 ? found : [low, high];
}
function scale(low, high, from, to, log) {
  const f = log ? Math.log : v => v, a = f(low), b = f(high) === a ? a + 1 : f(high);
  const map = v => from + (f(v) - a) / (b - a) * (to - from);
  map.back = p => { const v = a + (p - from) / (to - from) * (b - a); return log ? Math.exp(v) : v; };
  return map;
}
function extent(values, padding) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (v !== null && isFinite(v)) { if (v < low) low = v; if (v > high) high = v; }
  if (low > high) return null;
  const room = (high - low) * (padding || 0) || (high === low ? Math.abs(high) * 0.05 || 0.5 : 0);
  return [low - room, high + room];
}

const LETTER = 6.1;
const shorten = (text, room) => text.length * LETTER <= room ? text : text.slice(0, Math.max(1, Math.floor(room / LETTER) - 1)) + "…";

// A frame with grid lines and labels: returns {root, layer, x, y, box}.
function frame(options) {
  const { width, height, xs } = options, ys = options.ys || [0, 1];
  const left = options.left || 46, right = options.right || 12, top = 8, bottom = options.xlabel ? 36 : 22;
  const box = { left, top, right: width - right, bottom: height - bottom };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": options.label || "" });
  const x = scale(xs[0], xs[1], box.left, box.right, options.logx), y = scale(ys[0], ys[1], box.bottom, box.top);
  const xformat = FORMATS[options.xkind || "plain"], yformat = FORMATS[options.ykind || "plain"];
  if (options.rows) options.rows.forEach((r, i) => {
    const name = shorten(r.name, left - 8);
    root.append(svg("text", { class: "title", x: left - 7, y: box.top + (i + 0.5) * options.step + 4, "text-anchor": "end" }, name));
  });
  else for (const v of ticks(ys[0], ys[1], Math.max(2, (box.bottom - box.top) / 42))) {
    root.append(svg("line", { class: "rule", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }));
    root.append(svg("text", { x: box.left - 6, y: y(v) + 4, "text-anchor": "end" }, yformat(v) + (options.ykind === "percent" ? "%" : "")));
  }
  const room = (box.right - box.left) / (options.xkind === "bytes" ? 85 : 60);
  for (const v of options.logx ? logTicks(xs[0], xs[1]) : ticks(xs[0], xs[1], room, options.exact)) {
    root.append(svg("line", { class: "rule", x1: x(v), x2: x(v), y1: box.top, y2: box.bottom }));
    root.append(svg("text", { x: x(v), y: box.bottom + 15, "text-anchor": "middle" }, xformat(v)));
  }
  root.append(svg("path", { class: "frame", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }));
  if (options.xlabel) root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, options.xlabel));
  const layer = svg("g", {});
  root.append(layer);
  return { root, layer, x, y, box };
}

// Grey all curves but this configuration's; null: none.
function focus(line) {
  for (const each of document.querySelectorAll("[data-line]")) each.classList.toggle("dim", line !== null && each.dataset.line !== String(line));
}

const tip = document.getElementById("tip");
function showTip(event, title, rows) {
  tip.replaceChildren(tag("b", {}, title));
  for (const [shade, name, value] of rows)
    tip.append(tag("div", {}, tag("span", {}, shade ? tag("i", { style: { background: shade } }) : null, name), tag("span", {}, value)));
  tip.hidden = false;
  const wide = tip.offsetWidth, tall = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(innerWidth - wide - 4, event.clientX + 14)) + "px";
  tip.style.top = (event.clientY + tall + 22 > innerHeight ? Math.max(4, event.clientY - tall - 12) : event.clientY + 14) + "px";
}
function hideTip() { tip.hidden = true; }
