// The page of an explanation: a cursor through memory, and graphs when asked for.
// All text from the program goes through textContent; nothing of it is ever markup.

const TOP = 14, LEFT = 70, WIDTH = 1000;  // as the picture is drawn
const programs = JSON.parse(document.getElementById("programs").textContent);

function element(name, text = null, kind = "") {
  const found = document.createElement(name);
  if (text !== null) found.textContent = text;
  if (kind) found.className = kind;
  return found;
}

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; count >= 1000 && at < units.length - 1; at++) count /= 1000;
  return (at ? count.toPrecision(3) : count) + " " + units[at];
}

// -- memory

function liveAt(program, step) {
  return program.values
    .filter(([, , first, last]) => first <= step && step <= last)
    .sort((a, b) => b[1] - a[1]);
}

function describe(program, step) {
  const live = liveAt(program, step);
  const total = live.reduce((sum, value) => sum + value[1], 0);
  const table = element("table");
  for (const [name, count, first, last, place] of live.slice(0, TOP)) {
    const row = element("tr");
    row.append(
      element("td", bytes(count), "number"), element("td", name, "text"),
      element("td", `steps ${first}–${last}`, "number"),
      element("td", program.places[place], "text"));
    table.append(row);
  }
  const more = live.length > TOP ? `, the largest ${TOP}` : "";
  const head = `step ${step}: ${program.steps[step]}; ` +
    `${bytes(total)} in ${live.length} values${more}:`;
  return [element("p", head, "note"), table];
}

function follow(section, program) {
  const picture = section.querySelector(".timeline");
  if (!picture) return;
  const cursor = picture.querySelector("#cursor");
  const live = section.querySelector(".live");
  const count = program.steps.length;
  picture.addEventListener("pointermove", (event) => {
    const { left, width } = picture.getBoundingClientRect();
    const x = (event.clientX - left) / width * WIDTH;
    const at = Math.floor((x - LEFT) / (WIDTH - LEFT) * count);
    const step = Math.min(Math.max(at, 0), count - 1);
    const middle = LEFT + (WIDTH - LEFT) * (step + 0.5) / count;
    cursor.setAttribute("x1", middle);
    cursor.setAttribute("x2", middle);
    cursor.setAttribute("visibility", "visible");
    live.replaceChildren(...describe(program, step));
  });
}

programs.forEach((program, k) =>
  follow(document.getElementById("program-" + k), program));

// -- graphs

// A graph's page may draw, and nothing else: it has no origin and loads nothing.
function show(details) {
  const frame = details.querySelector(".frame-of-graph");
  if (!details.open || frame.firstChild) return;
  const held = document.getElementById("graph-" + details.dataset.graph);
  const inner = element("iframe");
  inner.setAttribute("sandbox", "allow-scripts");
  inner.srcdoc = JSON.parse(held.textContent);
  frame.append(inner);
}

for (const details of document.querySelectorAll("details.graph")) {
  details.addEventListener("toggle", () => show(details));
  show(details); // one that is open already
}
