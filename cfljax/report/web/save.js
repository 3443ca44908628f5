"use strict";
// Downloads of a figure, without a network: SVG, PNG through a canvas, and the numbers as CSV.

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "paint-order", "font-size", "font-family", "font-weight", "text-anchor", "image-rendering"];

// A copy of a drawing that needs no style sheet; without what only answers the pointer, and without names at the ends of curves if a legend has all of them.
function inked(node, listed) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.cloneNode();
  const style = getComputedStyle(node);
  if (style.visibility === "hidden" || node.getAttribute("fill") === "transparent" || listed && (node.classList.contains("end") || node.classList.contains("lead"))) return null;
  const copy = node.cloneNode(false);
  for (const name of ["class", "style", "tabindex", "data-line"]) copy.removeAttribute(name);
  for (const name of KEPT) copy.setAttribute(name, style.getPropertyValue(name));
  copy.append(...[...node.childNodes].map(child => inked(child, listed)).filter(child => child));
  return copy;
}

// White paper around a downloaded drawing, more at the left where a vertical axis has its title.
const MARGIN = 10, TITLE_ROOM = 16;
// A legend below a drawing: the width of a column, and the height of a line.
const KEY_ROOM = 190, KEY_LINE = 17;

// The drawings of a figure on white paper as one SVG, with a legend below if not all of its curves are named beside their ends.
function pictureOf(figure) {
  const parts = [...figure.querySelectorAll(".plot svg, .plot h4, .plot .keys span")].map(node => ({ node, box: node.getBoundingClientRect() }));
  const titled = parts.some(p => p.node.ylabel), margin = MARGIN + (titled ? TITLE_ROOM : 0);
  const left = Math.min(...parts.map(p => p.box.left)) - margin, top = Math.min(...parts.map(p => p.box.top)) - MARGIN;
  const width = Math.ceil(Math.max(...parts.map(p => p.box.right)) - left) + MARGIN, root = svg("svg", { width });
  const write = (text, x, y) => svg("text", { x, y, fill: "#1b2230", "font-size": 12, "font-family": "sans-serif" }, text);
  let height = Math.ceil(Math.max(...parts.map(p => p.box.bottom)) - top) + MARGIN;
  const curves = parts.flatMap(p => p.node.keys || []), listed = curves.length > figure.querySelectorAll("svg .end").length;
  for (const { node, box } of parts) {
    const x = box.left - left, y = box.top - top, key = node.querySelector("i");
    if (node.tagName === "svg") {
      const copy = inked(node, listed);
      for (const [name, value] of Object.entries({ x, y, width: box.width, height: box.height, overflow: "visible" })) copy.setAttribute(name, value);
      root.append(copy);
      if (node.ylabel) {
        const title = write(node.ylabel, x - 4, y + box.height / 2);
        title.setAttribute("text-anchor", "middle");
        title.setAttribute("transform", `rotate(-90 ${x - 4} ${y + box.height / 2})`);
        root.append(title);
      }
    } else {
      if (key) root.append(svg("rect", { x, y: y + 3, width: 9, height: 9, fill: getComputedStyle(key).backgroundColor }));
      root.append(write(shorten(node.textContent, key ? width : box.width), x + (key ? 14 : 0), y + 12));
    }
  }
  const across = Math.max(1, Math.floor((width - 2 * MARGIN) / KEY_ROOM));
  if (listed) {
    curves.forEach((curve, i) => {
      const x = margin + i % across * KEY_ROOM, y = height + 6 + Math.floor(i / across) * KEY_LINE, probe = svg("i", { fill: curve.shade });
      figure.querySelector(".plot svg").append(probe);
      const shade = getComputedStyle(probe).fill;
      probe.remove();
      root.append(svg("line", { x1: x, x2: x + 20, y1: y - 4, y2: y - 4, stroke: shade, "stroke-width": 2, "stroke-dasharray": curve.dash }), markerAt(curve.marker, x + 10, y - 4, shade), write(shorten(curve.name, KEY_ROOM - 40), x + 26, y));
    });
    height += MARGIN + KEY_LINE * Math.ceil(curves.length / across);
  }
  root.prepend(svg("rect", { width, height, fill: "#ffffff" }));
  root.setAttribute("height", height);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return new XMLSerializer().serializeToString(root);
}

// The numbers of a figure: a line each; of several panels with the name of the panel.
function numbersOf(figure) {
  const tables = [...figure.querySelectorAll(".plot svg")].filter(each => each.rows).map(each => [each.rows, each.closest(".panel")]);
  const formula = text => /^[=+@\t\r-]/.test(text) && isNaN(text);  // a spreadsheet would compute it
  const cell = value => { const own = String(value ?? ""), text = formula(own) ? `'${own}` : own; return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
  const lines = tables.flatMap(([rows, panel], t) => rows.slice(t ? 1 : 0).map((row, i) => panel ? [t || i ? panel.querySelector("h4").textContent : "panel", ...row] : row));
  return lines.map(line => line.map(cell).join(",") + "\n").join("");
}

function download(figure, kind, content) {
  const link = tag("a", { href: URL.createObjectURL(content), download: `${document.title.replace(/[^\w.-]+/g, "_")}_${figure.id.slice(4)}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function save(figure, kind) {
  if (kind === "csv") return download(figure, kind, new Blob([numbersOf(figure)], { type: "text/csv" }));
  document.documentElement.classList.add("light");  // paper is white
  draw();
  const text = pictureOf(figure);
  document.documentElement.classList.remove("light");
  draw();
  if (kind === "svg") return download(figure, kind, new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.onload = () => {
    const canvas = tag("canvas", { width: 3 * image.width, height: 3 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(content => download(figure, kind, content));
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
}

const savers = figure => tag("span", { class: "save" }, ...["png", "svg", ...(["fig-ranks", "fig-profiles"].includes(figure.id) ? [] : ["csv"])].map(kind =>
  tag("button", { type: "button", class: "plain", title: `Download this figure as ${kind.toUpperCase()}`, onclick: () => save(figure, kind) }, kind.toUpperCase())));
