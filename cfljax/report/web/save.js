"use strict";
// Downloads of a figure, without a network: SVG, PNG through a canvas, and the numbers as CSV.

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "paint-order", "font-size", "font-family", "font-weight", "text-anchor", "image-rendering"];

// A copy of a drawing that needs no style sheet; without what only answers the pointer.
function inked(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.cloneNode();
  const style = getComputedStyle(node);
  if (style.visibility === "hidden" || node.getAttribute("fill") === "transparent") return null;
  const copy = node.cloneNode(false);
  for (const name of ["class", "style", "tabindex", "data-line"]) copy.removeAttribute(name);
  for (const name of KEPT) copy.setAttribute(name, style.getPropertyValue(name));
  copy.append(...[...node.childNodes].map(inked).filter(child => child));
  return copy;
}

// The drawings of a figure on white paper as one SVG, with the names of its curves below where they do not all stand in it.
function pictureOf(figure) {
  const parts = [...figure.querySelectorAll(".plot svg, .plot h4, .plot .keys span")].map(node => ({ node, box: node.getBoundingClientRect() }));
  const left = Math.min(...parts.map(p => p.box.left)), top = Math.min(...parts.map(p => p.box.top));
  const width = Math.ceil(Math.max(...parts.map(p => p.box.right)) - left), root = svg("svg", { width });
  const write = (text, x, y) => svg("text", { x, y, fill: "#1b2230", "font-size": 12, "font-family": "sans-serif" }, text);
  let height = Math.ceil(Math.max(...parts.map(p => p.box.bottom)) - top);
  for (const { node, box } of parts) {
    const x = box.left - left, y = box.top - top, key = node.querySelector("i");
    if (node.tagName === "svg") {
      const copy = inked(node);
      for (const [name, value] of Object.entries({ x, y, width: box.width, height: box.height })) copy.setAttribute(name, value);
      root.append(copy);
    } else {
      if (key) root.append(svg("rect", { x, y: y + 3, width: 9, height: 9, fill: getComputedStyle(key).backgroundColor }));
      root.append(write(shorten(node.textContent, key ? width : box.width), x + (key ? 14 : 0), y + 12));
    }
  }
  const curves = parts.flatMap(p => p.node.keys || []), across = Math.max(1, Math.floor(width / 190));
  if (curves.length > figure.querySelectorAll("svg .end").length) {
    curves.forEach((curve, i) => {
      const x = i % across * 190, y = height + 16 + Math.floor(i / across) * 17, probe = svg("i", { fill: curve.shade });
      figure.querySelector(".plot svg").append(probe);
      root.append(svg("line", { x1: x, x2: x + 20, y1: y - 4, y2: y - 4, stroke: getComputedStyle(probe).fill, "stroke-width": 2.5, "stroke-dasharray": curve.dash }), write(shorten(curve.name, 160), x + 26, y));
      probe.remove();
    });
    height += 12 + 17 * Math.ceil(curves.length / across);
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
