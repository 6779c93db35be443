// The page of a graph: draws it, opens and closes groups, finds and explains nodes.
// All text from the graph goes through textContent; nothing of it is ever markup.

const LABEL = 40, TITLE = 32, FOUND = 60;
const cut = (text, length) =>
  text.length <= length ? text : text.slice(0, length - 1) + "…";

// The data in the page, with the questions one asks of it.
class PageGraph {
  constructor(data) {
    Object.assign(this, data);
    this.count = this.boxes.length;
    for (const group of this.groups) group.bends = new Map(group.bends);
    const { boxes, edges } = this;
    for (const box of boxes) box.users = [];
    for (const [from, to] of edges) boxes[from].users.push(to);
  }

  groupNumber(item) { return item - this.count; }

  parent(item) {
    return item < this.count ? this.boxes[item].home
                             : this.groups[item - this.count].parent;
  }

  chain(item) {
    const found = [item];
    for (let above; (above = this.parent(found[found.length - 1])) > 0; )
      found.push(this.count + above);
    return found;
  }

  lift(from, to) {
    const a = this.chain(from), b = this.chain(to);
    while (a.length > 1 && b.length > 1 && a[a.length - 1] === b[b.length - 1]) {
      a.pop();
      b.pop();
    }
    const first = a[a.length - 1], last = b[b.length - 1];
    return [Math.max(this.parent(first), 0), first, last];
  }

  title(item) {
    if (item < this.count) return cut(this.boxes[item].title, TITLE);
    const group = this.groups[item - this.count];
    return cut(group.name, TITLE) + " (" + group.count + ")";
  }

  label(box) { return cut(this.strings[this.boxes[box].type], LABEL); }

  kind(item) {
    return this.kinds[item < this.count ? this.boxes[item].kind
                                        : this.groups[item - this.count].kind];
  }

  path(group) {
    const names = [];
    for (; group > 0; group = this.groups[group].parent)
      names.unshift(this.groups[group].name);
    return names.join("/");
  }
}

const graph = new PageGraph(
  JSON.parse(document.getElementById("graph-data").textContent));
const drawing = document.getElementById("drawing");
const view = document.getElementById("view");
const panel = document.getElementById("panel");
const search = document.getElementById("search");
const results = document.getElementById("results");
let opened = new Set(graph.opened), scene = null, selected = null;
let zoom = 1, left = 0, top_ = 0;

// -- elements

function element(name, attributes = {}, text = null) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) found.setAttribute(key, attributes[key]);
  if (text !== null) found.textContent = text;
  return found;
}

function html(name, text = null, attributes = {}) {
  const found = document.createElement(name);
  for (const key in attributes) found.setAttribute(key, attributes[key]);
  if (text !== null) found.textContent = text;
  return found;
}

// -- drawing

function draw() {
  scene = new Scene(graph, opened);
  const frames = [], boxes = [], labels = [];
  for (const [item, rect] of scene.rects)
    (opened.has(graph.groupNumber(item)) ? frames : boxes).push(shape(item, rect));
  for (const [item, text] of scene.labels()) {
    const { x, y, width, height } = scene.rects.get(item);
    labels.push(element("text", { class: "label", x: x + width / 2, y: y + height + 12,
                                  "text-anchor": "middle" }, text));
  }
  view.replaceChildren(...frames, ...scene.lines.map(path), ...boxes, ...labels);
  mark();
}

function shape(item, { x, y, width, height }) {
  const group = graph.groupNumber(item), open = opened.has(group);
  const output = graph.outputs.includes(item) ? " output" : "";
  const extra = open ? "frame " : group >= 0 ? "box closed " : "box ";
  const found = element("g", { class: extra + graph.kind(item) + output,
                               "data-item": item });
  const name = open ? "− " + graph.groups[group].name : graph.title(item);
  const full = group >= 0 ? graph.path(group) : graph.boxes[item].name;
  found.append(
    element("title", {}, full),
    element("rect", { x, y, width, height, rx: open ? 8 : 5 }),
    open ? element("text", { x: x + 10, y: y + HEAD - 6, class: "handle" }, name)
         : element("text", { x: x + width / 2, y: y + BOX / 2 + 4,
                             "text-anchor": "middle" }, name));
  return found;
}

function path(line) {
  const { points } = line;
  let d = "M" + points[0];
  for (let k = 0; k < points.length - 1; k += 2) {
    const [x, y] = points[k], [toX, toY] = points[k + 1], middle = (y + toY) / 2;
    d += "C" + [x, middle, toX, middle, toX, toY];
    if (k + 2 < points.length) d += "L" + points[k + 2];
  }
  return element("path", { class: "edge " + line.kind, d, "marker-end": "url(#arrow)",
                           "data-from": line.source, "data-to": line.target });
}

// Show what is selected, and the edges from and to it.
function mark() {
  const seen = selected === null ? null
    : selected < graph.count ? scene.seen(selected) : selected;
  for (const found of view.querySelectorAll(".hot")) found.classList.remove("hot");
  if (seen === null) return;
  const chosen = `[data-item="${seen}"],[data-from="${seen}"],[data-to="${seen}"]`;
  for (const found of view.querySelectorAll(chosen)) found.classList.add("hot");
}

// -- zoom and pan

function move() {
  view.setAttribute("transform", `translate(${left},${top_}) scale(${zoom})`);
}

function zoomAt(x, y, factor) {
  const next = Math.min(Math.max(zoom * factor, 0.01), 4);
  left = x - (x - left) * next / zoom;
  top_ = y - (y - top_) * next / zoom;
  zoom = next;
  move();
}

// The whole drawing, or its top where that would be too small to read.
function fit(least = 0.02) {
  const { clientWidth, clientHeight } = drawing;
  zoom = Math.min(clientWidth / scene.width, clientHeight / scene.height, 1);
  zoom = Math.max(zoom, least);
  left = (clientWidth - scene.width * zoom) / 2;
  top_ = Math.max((clientHeight - scene.height * zoom) / 2, 0);
  move();
}

function centre(item) {
  const { x, y, width, height } = scene.rects.get(item);
  zoom = Math.max(zoom, 0.7);
  left = drawing.clientWidth / 2 - (x + width / 2) * zoom;
  top_ = drawing.clientHeight / 2 - (y + Math.min(height, 200) / 2) * zoom;
  move();
}

// -- opening and closing

// Whatever opens, the item that was touched stays where it is on the screen.
function toggle(group) {
  const item = graph.count + group, before = scene.rects.get(item);
  opened.has(group) ? opened.delete(group) : opened.add(group);
  draw();
  const after = scene.rects.get(item);
  left += (before.x - after.x) * zoom;
  top_ += (before.y - after.y) * zoom;
  move();
  explain(item);
}

function reveal(item) {
  for (const above of graph.chain(item).slice(1)) opened.add(graph.groupNumber(above));
  draw();
  explain(item);
  centre(item);
}

function openAll(every) {
  opened = new Set(every ? graph.groups.keys() : [0]);
  draw();
  fit();
}

// -- the panel

function explain(item) {
  selected = item;
  mark();
  panel.hidden = false;
  const close = html("button", "×", { class: "close", title: "close" });
  close.onclick = () => { panel.hidden = true; selected = null; mark(); };
  const rows = item < graph.count ? aboutBox(item) : aboutGroup(item);
  panel.replaceChildren(close, ...rows);
}

function aboutBox(item) {
  const box = graph.boxes[item], text = (number) => graph.strings[number];
  return [
    html("h2", box.name),
    ...field("operator", text(box.op)),
    ...field("type", text(box.type)),
    ...field("kind", graph.kinds[box.kind]),
    ...field("module", text(box.module)),
    ...field("parameters", text(box.params), "pre"),
    ...field("source", text(box.line), "pre"),
    ...links("inputs", box.inputs),
    ...links("after", box.after),
    ...links("users", box.users),
  ];
}

function aboutGroup(item) {
  const group = graph.groups[item - graph.count];
  return [
    html("h2", graph.path(item - graph.count)),
    ...field("nodes", String(group.count)),
    ...links("holds", group.items),
  ];
}

function field(name, text, kind = "p") {
  return text ? [html("h3", name), html(kind, text)] : [];
}

// Inputs may be numbers and sizes too: those come as text.
function links(name, items) {
  if (!items.length) return [];
  const list = html("ul");
  for (const item of items.slice(0, 200)) {
    const row = html("li", typeof item === "string" ? item : null);
    if (typeof item !== "string") row.append(link(item));
    list.append(row);
  }
  if (items.length > 200) list.append(html("li", `and ${items.length - 200} more`));
  return [html("h3", name), list];
}

function link(item) {
  const name = item < graph.count ? graph.boxes[item].name : graph.title(item);
  const found = html("a", name, { href: "#" });
  found.onclick = (event) => { event.preventDefault(); reveal(item); };
  return found;
}

// -- search

function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  if (!words.length) return found;
  for (let k = 0; k < graph.count && found.length < FOUND; k++) {
    const box = graph.boxes[k];
    const hay = [box.name, box.title, graph.strings[box.op], graph.strings[box.module]]
      .join(" ").toLowerCase();
    if (words.every((word) => hay.includes(word))) found.push(k);
  }
  return found;
}

function showResults() {
  const found = find(search.value);
  results.hidden = !search.value;
  results.replaceChildren(...found.map((item) => {
    const row = html("li", null, { class: graph.kind(item) });
    row.append(link(item));
    return row;
  }));
  if (!found.length) results.append(html("li", "nothing found"));
  return found;
}

// -- events

drawing.addEventListener("wheel", (event) => {
  event.preventDefault();
  const { left: x, top: y } = drawing.getBoundingClientRect();
  zoomAt(event.clientX - x, event.clientY - y, Math.exp(-event.deltaY / 500));
}, { passive: false });

let drag = null;
drawing.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY, left, top_, moved: false };
});
window.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
  drag.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
  if (!drag.moved) return;
  [left, top_] = [drag.left + dx, drag.top_ + dy];
  move();
});
window.addEventListener("pointerup", (event) => {
  const still = drag && !drag.moved;
  drag = null;
  if (still) click(event.target);
});

function click(target) {
  const shape = target.closest("[data-item]");
  if (!shape || !drawing.contains(shape)) return;
  const item = Number(shape.dataset.item), group = graph.groupNumber(item);
  if (group < 0) explain(item);
  else if (!opened.has(group) || target.classList.contains("handle")) toggle(group);
}

search.addEventListener("input", showResults);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { const [first] = showResults(); if (first >= 0) reveal(first); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { search.value = ""; results.hidden = true; search.blur(); }
  if (event.target === search) return;
  if (event.key === "/") { event.preventDefault(); search.focus(); }
  if (event.key === "f") fit();
});
document.getElementById("fit").onclick = () => fit();
document.getElementById("open").onclick = () => openAll(true);
document.getElementById("close").onclick = () => openAll(false);
window.addEventListener("resize", move);

// A drawing that is too wide begins with the program's first node.
function start() {
  draw();
  fit(0.6);
  const { x, width } = scene.rects.get(scene.seen(0)) ?? { x: 0, width: 0 };
  if (scene.width * zoom > drawing.clientWidth)
    left = drawing.clientWidth / 2 - (x + width / 2) * zoom;
  move();
}

start();
