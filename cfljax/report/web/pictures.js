"use strict";
// Pictures of one run: clusters over rounds, mixtures, found × true.

// Real colours for a canvas, which knows no CSS variables.
function resolved(text) {
  const probe = tag("i", { style: { color: text, display: "none" } });
  document.body.append(probe);
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return found;
}

// A canvas with a pixel per cell, to be stretched: shade(i) -> [r, g, b].
function pixels(columns, rows, shade) {
  const canvas = tag("canvas", { width: columns, height: rows }), context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let i = 0; i < columns * rows; i++) {
    const [r, g, b] = shade(i);
    image.data.set([r, g, b, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
function stretched(url, x, y, width, height) {
  return svg("image", { class: "pixels", href: url, x, y, width, height, preserveAspectRatio: "none" });
}

// Numbers of colours as bytes: 255 is "none".
function painter(codes) {
  const cache = new Map();
  return i => {
    const code = codes[i];
    if (!cache.has(code)) cache.set(code, resolved(colour(code === 255 ? -1 : code)));
    return cache.get(code);
  };
}
const named = code => code === 255 ? "–" : String(code);

// Clusters, or true groups, over rounds; or mixtures, whose columns are p.xlabel and whose colours are models.
function assignment(p, width) {
  const codes = bytesOf(p.cells), groups = bytesOf(p.groups), rows = groups.length, columns = p.rounds.length;
  const strip = 9, left = 14, top = 4, tall = Math.max(90, Math.min(260, rows * 4)), wide = width - left - strip - 6;
  const root = svg("svg", { viewBox: `0 0 ${width} ${tall + 34}`, width, height: tall + 34, role: "img", "aria-label": p.name || `${p.shade} over rounds` });
  root.append(stretched(pixels(1, rows, painter(groups)), left - 8, top, strip, tall));
  root.append(stretched(pixels(columns, rows, painter(codes)), left + strip, top, wide, tall));
  for (let i = 1; i < rows; i++) if (groups[i] !== groups[i - 1]) {
    const y = top + i / rows * tall;
    root.append(svg("line", { x1: left - 8, x2: left + strip + wide, y1: y, y2: y, stroke: "var(--card)", "stroke-width": 1.2 }));
  }
  root.rows = [["client", p.strip, p.xlabel || "round", p.shade], ...Array.from(codes, (code, i) => [Math.floor(i / columns), named(groups[Math.floor(i / columns)]), p.rounds[i % columns], named(code)])];
  const last = p.rounds[columns - 1], nearest = v => p.rounds.reduce((best, r, i) => Math.abs(r - v) < Math.abs(p.rounds[best] - v) ? i : best, 0);
  for (const i of new Set(ticks(p.rounds[0], last, wide / 60, true).map(nearest)))
    root.append(svg("text", { x: left + strip + (i + 0.5) / columns * wide, y: top + tall + 14, "text-anchor": "middle" }, String(p.rounds[i])));
  root.append(svg("text", { x: left + strip + wide / 2, y: top + tall + 29, "text-anchor": "middle" }, p.xlabel || "round"));
  root.append(svg("rect", {
    x: left, y: top, width: wide + strip, height: tall, fill: "transparent", onpointerleave: hideTip,
    onpointermove: event => {
      const place = root.getBoundingClientRect(), ratio = width / place.width;
      const c = Math.floor(((event.clientX - place.left) * ratio - left - strip) / wide * columns), r = Math.floor(((event.clientY - place.top) * ratio - top) / tall * rows);
      if (c < 0 || c >= columns || r < 0 || r >= rows) return;
      showTip(event, p.xlabel === "weight, %" ? `up to ${p.rounds[c]} %` : `round ${p.rounds[c]}`, [[colour(groups[r] === 255 ? -1 : groups[r]), p.strip, named(groups[r])], [colour(codes[r * columns + c] === 255 ? -1 : codes[r * columns + c]), `${p.shade} (colour)`, named(codes[r * columns + c])]]);
    },
  }));
  return root;
}

function confusion(p, width) {
  const rows = p.clusters.length, columns = p.groups.length, most = Math.max(1, ...p.table.flat());
  const left = 46, top = 20, cell = Math.min(44, (width - left - 4) / columns), tall = Math.min(30, Math.max(14, cell));
  const root = svg("svg", { viewBox: `0 0 ${width} ${top + rows * tall + 4}`, width, height: top + rows * tall + 4, role: "img", "aria-label": "found clusters by true groups" });
  root.rows = [["cluster", "true group", "clients"], ...p.table.flatMap((line, k) => line.map((count, g) => [p.clusters[k], p.groups[g], count]))];
  p.groups.forEach((name, g) => root.append(svg("text", { x: left + (g + 0.5) * cell, y: top - 6, "text-anchor": "middle" }, shorten(name, cell + 4))));
  p.table.forEach((line, k) => {
    const y = top + k * tall;
    root.append(svg("rect", { x: 0, y: y + 2, width: 7, height: tall - 4, rx: 1.5, fill: colour(p.colours[k]) }));
    root.append(svg("text", { x: left - 6, y: y + tall / 2 + 4, "text-anchor": "end" }, shorten(p.clusters[k], 34)));
    line.forEach((count, g) => {
      const share = count / most, box = { x: left + g * cell + 0.5, y: y + 0.5, width: cell - 1, height: tall - 1, rx: 2 };
      root.append(svg("rect", { ...box, fill: "var(--grid)" }), svg("rect", {
        ...box, fill: "var(--accent)", opacity: count ? 0.15 + 0.85 * share : 0, onpointerleave: hideTip,
        onpointermove: event => showTip(event, `${count} client${count === 1 ? "" : "s"}`, [[null, "cluster", p.clusters[k]], [null, "true group", p.groups[g]]]),
      }));
      if (count && cell > 9 + LETTER * String(count).length) root.append(svg("text", {
        class: "title", x: left + (g + 0.5) * cell, y: y + tall / 2 + 4, "text-anchor": "middle", "pointer-events": "none",
        style: { fill: share > 0.5 ? "var(--paper)" : "var(--ink)" },
      }, String(count)));
    });
  });
  return root;
}

// How well methods agree: names.length rows and columns, the columns by the numbers of the rows.
function agreement(names, table, width) {
  const left = Math.min(width * 0.5, 24 + LETTER * Math.max(...names.map(name => name.length + 4))), top = 20;
  const cell = Math.max(18, Math.min(56, (width - left - 4) / names.length)), tall = Math.min(28, Math.max(16, cell));
  const root = svg("svg", { viewBox: `0 0 ${width} ${top + names.length * tall + 4}`, width, height: top + names.length * tall + 4, role: "img", "aria-label": "agreement of clusterings" });
  root.rows = [["method", "other method", "adjusted Rand index"], ...names.flatMap((name, i) => names.map((other, j) => [name, i === j ? `${other}, other seeds` : other, table[i][j]]))];
  names.forEach((name, j) => root.append(svg("text", { x: left + (j + 0.5) * cell, y: top - 6, "text-anchor": "middle" }, String(j + 1))));
  table.forEach((line, i) => {
    const y = top + i * tall;
    root.append(svg("text", { class: "title", x: left - 6, y: y + tall / 2 + 4, "text-anchor": "end" }, `${shorten(names[i], left - 34)} ${i + 1}`));
    line.forEach((value, j) => {
      const box = { x: left + j * cell + 0.5, y: y + 0.5, width: cell - 1, height: tall - 1, rx: 2 }, share = Math.max(0, value ?? 0);
      root.append(svg("rect", { ...box, fill: "var(--grid)" }), svg("rect", {
        ...box, fill: "var(--accent)", opacity: share, onpointerleave: hideTip,
        onpointermove: event => showTip(event, `ARI ${value === null ? "–" : value.toFixed(2)}`, i === j ? [[null, names[i], "between its seeds"]] : [[null, "methods", `${names[i]}, ${names[j]}`]]),
      }));
      if (value !== null && cell > 9 + LETTER * 4) root.append(svg("text", {
        x: left + (j + 0.5) * cell, y: y + tall / 2 + 4, "text-anchor": "middle", "pointer-events": "none",
        style: { fill: share > 0.5 ? "var(--paper)" : "var(--ink)" },
      }, value.toFixed(2)));
    });
  });
  return root;
}
