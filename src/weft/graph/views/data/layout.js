// Where the items of open groups stand. The rows of each group come with the page;
// this gives them places: as scene.py and layout.py do, in the same steps.
"use strict";

const BOX = 26, HEAD = 22, PAD = 14, FOOT = 24, GAP_X = 18, GAP_Y = 44, SWEEPS = 6;
const LETTER = 7.3, SMALL_LETTER = 5.6;

const mean = (values, other) =>
  values.length ? values.reduce((a, b) => a + b, 0) / values.length : other;

function neighbours(links) {
  const above = new Map(), below = new Map();
  const add = (map, key, value) =>
    map.has(key) ? map.get(key).push(value) : map.set(key, [value]);
  for (const [a, b] of links) { add(below, a, b); add(above, b, a); }
  return [above, below];
}

// As near to the wishes as the order and the gaps allow: the mean of pushing from
// the left and pushing from the right.
function align(line, width, wish, x) {
  const apart = (a, b) => (width.get(a) + width.get(b)) / 2 + GAP_X;
  const right = [];
  line.forEach((item, k) => {
    const at = wish(item);
    right.push(k ? Math.max(at, right[k - 1] + apart(line[k - 1], item)) : at);
  });
  const found = [];
  let bound = Infinity;
  for (let k = line.length - 1; k >= 0; k--) {
    const at = Math.min(wish(line[k]), bound);
    found[k] = (at + right[k]) / 2;
    if (k) bound = at - apart(line[k - 1], line[k]);
  }
  line.forEach((item, k) => x.set(item, found[k]));
}

function place(group, size) {
  const { rows, links } = group, x = new Map(), width = new Map();
  for (const line of rows)
    for (const item of line) width.set(item, item < 0 ? 4 : size(item)[0]);
  for (const line of rows) align(line, width, () => 0, x);
  const [above, below] = neighbours(links);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const kin = sweep % 2 ? below : above;
    const wish = (i) => mean((kin.get(i) || []).map((j) => x.get(j)), x.get(i));
    for (const line of sweep % 2 ? [...rows].reverse() : rows) align(line, width, wish, x);
  }
  return stack(rows, size, x, width);
}

function stack(rows, size, x, width) {
  let left = Infinity, right = -Infinity, top = 0;
  for (const [item, at] of x) {
    left = Math.min(left, at - width.get(item) / 2);
    right = Math.max(right, at + width.get(item) / 2);
  }
  const y = new Map(), height = new Map();
  for (const line of rows) {
    const tall = Math.max(0, ...line.filter((i) => i >= 0).map((i) => size(i)[1]));
    for (const item of line) { y.set(item, top + tall / 2); height.set(item, tall); }
    top += tall + GAP_Y;
  }
  for (const [item, at] of x) x.set(item, at - left);
  return { x, y, height, width: Math.max(right - left, 0), bottom: Math.max(top - GAP_Y, 0) };
}

// A drawing of the graph with some groups open: `rects` of items, `lines` between.
class Scene {
  constructor(graph, opened) {
    this.graph = graph;
    this.opened = opened;
    this.sizes = new Map();
    this.placed = new Map();
    this.corner = new Map([[0, [PAD, PAD]]]);
    this.rects = new Map();
    [this.width, this.height] = this.measure(0);
    this.spread(0);
    this.lines = this.connect();
  }

  measure(number) {
    const group = this.graph.groups[number];
    for (const item of group.items) this.sizes.set(item, this.size(item));
    const found = place(group, (i) => this.sizes.get(i));
    this.placed.set(number, found);
    const least = group.name.length * LETTER + 2 * PAD;
    const top = number ? PAD + HEAD : PAD;
    return [Math.max(found.width + 2 * PAD, least), top + found.bottom + FOOT];
  }

  size(item) {
    const group = this.graph.groupNumber(item);
    if (this.opened.has(group)) return this.measure(group);
    const letters = this.graph.title(item).length * LETTER + 18;
    if (group >= 0) return [Math.max(letters, 60), BOX];
    const label = this.graph.label(item).length * SMALL_LETTER + 8;
    return [Math.max(letters, label, 40), BOX];
  }

  spread(number) {
    const [left, top] = this.corner.get(number), found = this.placed.get(number);
    for (const item of this.graph.groups[number].items) {
      const [width, height] = this.sizes.get(item);
      const x = left + found.x.get(item) - width / 2;
      const y = top + found.y.get(item) - height / 2;
      this.rects.set(item, { x, y, width, height });
      const group = this.graph.groupNumber(item);
      if (this.opened.has(group)) {
        this.corner.set(group, [x + PAD, y + PAD + HEAD]);
        this.spread(group);
      }
    }
  }

  // The box itself, or the outermost closed group around it.
  seen(box) {
    const chain = this.graph.chain(box);
    for (let k = chain.length - 1; k > 0; k--)
      if (!this.opened.has(this.graph.groupNumber(chain[k]))) return chain[k];
    return box;
  }

  connect() {
    const { edges, count } = this.graph, found = new Map(), seen = [];
    for (let k = 0; k < count; k++) seen.push(this.seen(k));
    for (const [from, to, kind] of edges) {
      const source = seen[from], target = seen[to];
      if (source === target) continue;
      const key = source * 4294967296 + target;
      let line = found.get(key);
      if (!line) {
        line = { source, target, kind, points: this.points(from, to, source, target),
                 sources: new Set() };
        found.set(key, line);
      }
      if (kind === "data") line.sources.add(from);
    }
    return [...found.values()];
  }

  points(from, to, source, target) {
    const [group, first, last] = this.graph.lift(from, to);
    const a = this.rects.get(source), b = this.rects.get(target), upwards = b.y < a.y;
    const points = [[a.x + a.width / 2, a.y + (upwards ? 0 : a.height)]];
    const placed = this.placed.get(group), [left, top] = this.corner.get(group);
    for (const bend of this.graph.groups[group].bends.get(first + ">" + last) || []) {
      const x = left + placed.x.get(bend), y = top + placed.y.get(bend);
      const half = (upwards ? -1 : 1) * placed.height.get(bend) / 2;
      points.push([x, y - half], [x, y + half]);
    }
    points.push([b.x + b.width / 2, b.y + (upwards ? b.height : 0)]);
    return points;
  }

  labels() {
    const carried = new Map();
    for (const { source, sources } of this.lines) {
      if (!carried.has(source)) carried.set(source, new Set());
      for (const box of sources) carried.get(source).add(box);
    }
    const found = new Map();
    for (const [item, boxes] of carried)
      if (boxes.size)
        found.set(item, boxes.size > 1 ? boxes.size + " tensors"
                                       : this.graph.label([...boxes][0]));
    return found;
  }
}
