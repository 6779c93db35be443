"""Pages: a program, its weights and a way to try it, in one HTML file.

A program of pictures with one channel gets a field to draw on, one of tokens a field to
write in. The page loads nothing and sends nothing.
"""

from __future__ import annotations

import html
import json

from weft.compile.targets.c.interface import Interface
from weft.compile.targets.object.javascript import script
from weft.core.size import Size
from weft.errors import ArgumentError


def page(interface: Interface, most: int, code: bytes, vocabulary: str | None) -> str:
    """The page of a program: for pictures, or for text of a vocabulary's letters."""
    one = interface.functions[0]
    given, made = one.arguments
    shapes = [[None if isinstance(n, Size) else n for n in a.node.shape]
              for a in (*given, *made)]  # fmt: skip
    kinds = [a.node.dtype.name for a in (*given, *made)]
    if (len(interface.functions), len(given), len(made)) != (1, 1, 1):
        raise _unknown("several functions, arguments or results")
    (first, last) = shapes
    found = f"{kinds[0]}{first} to {kinds[1]}{last}"
    if vocabulary is not None:
        right = kinds == ["int64", "float32"] and (len(first), len(last)) == (2, 3)
        if not right or first[0] not in (1, None) or last[2] != len(vocabulary):
            raise _unknown(f"{found}, and {len(vocabulary)} letters")
        body, run = _TEXT, _WRITE
        most_letters = max([high for _, high in one.ranges.values()], default=None)
        letters = list(vocabulary)
        known = {"letters": letters, "length": first[1], "most": most_letters}
    else:
        right = kinds == ["float32"] * 2 and (len(first), len(last)) == (4, 2)
        if not right or first[0] not in (1, None) or first[1] != 1 or None in first[2:]:
            raise _unknown(found)
        body, run = _PICTURE, _DRAW
        known = {"height": first[2], "width": first[3], "classes": last[1]}
    text = _PAGE
    for key, value in {
        "TITLE": html.escape(interface.stem), "BODY": body,
        "SCRIPT": script(interface, most, code), "RUN": run,
        "KNOWN": json.dumps(known).replace("<", "\\u003c"),
        "OUT": json.dumps(made[0].name), "NAME": interface.name,
    }.items():  # fmt: skip
        text = text.replace(f"@{key}@", value)
    return text


def _unknown(found: str) -> ArgumentError:
    return ArgumentError(
        "export: pages are for pictures (float32[1, 1, height, width] to float32[1, "
        "classes]) and for text (int64[1, time] to float32[1, time, letters], with "
        f"vocabulary=...), got {found}; export '.wasm' and write a page around it"
    )


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>@TITLE@</title>
<style>
body {font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 40em;
  padding: 0 1em}
canvas {border: 1px solid gray; touch-action: none; cursor: crosshair}
textarea {width: 100%; height: 12em; font: inherit}
#all {display: inline-block; vertical-align: top; margin-left: 1em}
#all div {display: flex; align-items: center}
#all i {background: steelblue; height: .8em; margin: 0 .5em}
</style>
<h1>@TITLE@</h1>
@BODY@
<p id="said">Loading …</p>
<script>
@SCRIPT@
</script>
<script>
"use strict";
const known = @KNOWN@, out = @OUT@;
const find = (id) => document.getElementById(id);
let model = null;
const say = (text) => { find("said").textContent = text; };
const ready = @NAME@.load().then((made) => { model = made; say(""); },
  (error) => say(error.message));
@RUN@
</script>
</html>
"""

_PICTURE = """\
<p>Draw with the mouse or a finger.</p>
<canvas id="field" width="280" height="280"></canvas><div id="all"></div>
<p><button id="clear">Clear</button></p>"""

_DRAW = """\
const field = find("field"), pen = field.getContext("2d", {willReadFrequently: true});
let last = null;

function clear() {
  pen.fillStyle = "black";
  pen.fillRect(0, 0, field.width, field.height);
  find("all").replaceChildren();
}

// what is drawn, moved to the middle and made as small as the program's pictures
function picture() {
  const {data} = pen.getImageData(0, 0, field.width, field.height);
  const size = field.width;
  let left = size, right = -1, top = size, bottom = -1;
  for (let y = 0; y < size; y++) for (let x = 0; x < size; x++) {
    if (data[4 * (size * y + x)] < 32) continue;
    left = Math.min(left, x); right = Math.max(right, x);
    top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  if (right < 0) return null;
  const side = Math.max(right - left, bottom - top) + 1;
  const x0 = (left + right - side) / 2, y0 = (top + bottom - side) / 2;
  const {height, width} = known, made = new Float32Array(height * width);
  for (let i = 0; i < height; i++) for (let j = 0; j < width; j++) {
    let sum = 0;
    for (let k = 0; k < 64; k++) {
      const y = Math.round(y0 + (i + (k >> 3) / 8) * side / height);
      const x = Math.round(x0 + (j + (k & 7) / 8) * side / width);
      if (x >= 0 && x < size && y >= 0 && y < size) sum += data[4 * (size * y + x)];
    }
    made[i * width + j] = sum / 64 / 255;
  }
  return made;
}

function ask() {
  const data = picture();
  if (model === null || data === null) return;
  const scores = model.run({data, shape: [1, 1, known.height, known.width]})[out].data;
  const top = Math.max(...scores);
  const powers = Array.from(scores, (s) => Math.exp(s - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  find("all").replaceChildren(...powers.map((power, k) => {
    const row = document.createElement("div"), bar = document.createElement("i");
    bar.style.width = `${200 * power / sum}px`;
    row.append(`${k}`, bar, `${Math.round(100 * power / sum)} %`);
    return row;
  }));
  say(`It is a ${powers.indexOf(Math.max(...powers))}.`);
}

function point(event) {
  const box = field.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

field.onpointerdown = (event) => { last = point(event); };
window.onpointerup = () => { if (last !== null) ask(); last = null; };
field.onpointermove = (event) => {
  if (last === null) return;
  const now = point(event);
  pen.strokeStyle = "white"; pen.lineWidth = 26; pen.lineCap = "round";
  pen.beginPath(); pen.moveTo(...last); pen.lineTo(...now); pen.stroke();
  last = now;
  ask();
};
find("clear").onclick = clear;
clear();"""

_TEXT = """\
<p>Write a beginning, and let the program go on.</p>
<textarea id="field"></textarea>
<p><button id="go">Go on</button>
Temperature <input id="heat" type="number" value="0.8" min="0" step="0.1"></p>"""

_WRITE = """\
const numbers = new Map(known.letters.map((letter, k) => [letter, k]));

// the number of a letter, drawn by its score; the best one at temperature 0
function drawn(scores, heat) {
  const top = Math.max(...scores);
  if (!(heat > 0)) return scores.indexOf(top);
  const powers = Array.from(scores, (s) => Math.exp((s - top) / heat));
  let left = Math.random() * powers.reduce((a, b) => a + b, 0);
  return Math.max(powers.findIndex((power) => (left -= power) <= 0), 0);
}

function next(text, heat) {
  const most = known.length || known.most;
  const ids = Array.from(text).filter((c) => numbers.has(c))
    .map((c) => numbers.get(c));
  const some = ids.length > 0 ? ids.slice(-most) : [0];
  const count = known.length || some.length;
  const data = new BigInt64Array(count);
  some.forEach((id, k) => { data[k] = BigInt(id); });
  const scores = model.run({data, shape: [1, count]})[out].data;
  const width = known.letters.length, row = some.length - 1;
  return known.letters[drawn(scores.slice(row * width, (row + 1) * width), heat)];
}

async function go(count) {
  await ready;
  const heat = Number(find("heat").value);
  for (let k = 0; k < count; k++) {
    find("field").value += next(find("field").value, heat);
    if (k % 8 === 7) await new Promise((done) => setTimeout(done));
  }
}

find("go").onclick = () => go(200);"""
