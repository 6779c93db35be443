"""WebAssembly modules from JavaScript: a script that loads one and calls it."""

from __future__ import annotations

import base64
import json
from typing import Any

from weft.compile.targets.c.interface import Argument, Interface, Signature
from weft.compile.targets.c.source import comment
from weft.compile.targets.object.compiled import both_of, dimension_of
from weft.core.size import Size
from weft.errors import ArgumentError

_ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int8": "Int8Array",
    "int16": "Int16Array", "int32": "Int32Array", "int64": "BigInt64Array",
    "uint8": "Uint8Array", "uint16": "Uint16Array", "uint32": "Uint32Array",
    "uint64": "BigUint64Array", "bool": "Uint8Array",
}  # fmt: skip


def script(interface: Interface, most: int, code: bytes | None = None) -> str:
    """The script of a module; ``code`` puts the module itself into it.

    ``most`` is the memory that a model gets, in bytes.
    """
    data = "null" if code is None else json.dumps(base64.b64encode(code).decode())
    entries = {one.name: _entry(one) for one in interface.functions}
    text = _SCRIPT
    for key, value in {
        "HEAD": comment(f"{interface.stem}: {interface.made_of}"),
        "NAME": interface.name, "MEMORY": str(most), "CODE": data,
        "ENTRIES": json.dumps(entries, indent=2),
        "STATE": json.dumps(
            {key: _array(dtype.name) for key, (dtype, _) in interface.state.items()}
        ),
    }.items():  # fmt: skip
        text = text.replace(f"@{key}@", value)
    return text


def _entry(one: Signature) -> dict[str, Any]:
    """The arguments of a function, and where its open sizes are."""
    given = one.arguments[0]
    sizes = {}
    for name in one.open_sizes:
        argument, axis = divmod(dimension_of(one, name), 64)
        spelled = given[argument].node.shape[axis].symbol_name
        sizes[spelled] = [argument, axis]
    arguments = [_argument(a) for a in both_of(one)]
    return {"sizes": sizes, "inputs": len(given), "arguments": arguments}


def _argument(argument: Argument) -> dict[str, Any]:
    node = argument.node
    shape = [_terms(n, argument.name) for n in node.shape]
    return {"name": argument.name, "type": _array(node.dtype.name), "shape": shape}


def _array(dtype: str) -> str:
    if dtype not in _ARRAYS:
        raise ArgumentError(
            f"export: JavaScript has no arrays of {dtype}; convert it in the program, "
            "such as with x.float()"
        )
    return _ARRAYS[dtype]


def _terms(n: Any, name: str) -> Any:
    """A size as a number, or as terms: a factor and the names of open sizes."""
    if not isinstance(n, Size):
        return int(n)
    if any(atom.a is not None for atoms, _ in n.terms for atom in atoms):
        raise ArgumentError(
            f"export: JavaScript cannot know the size {n} of {name!r}, which has a "
            "division; give dynamic_shapes without it"
        )
    return [[int(factor), *[atom.kind for atom in atoms]] for atoms, factor in n.terms]


_SCRIPT = """\
@HEAD@
// const model = await @NAME@.load("@NAME@.wasm");    a path, an address, or bytes
// const {out} = model.run({data: [...], shape: [...]});
(function (root) {
  "use strict";
  const MEMORY = @MEMORY@;
  const CODE = @CODE@;
  const ENTRIES = @ENTRIES@;
  const STATE = @STATE@;
  const kinds = {Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    BigInt64Array, Uint8Array, Uint16Array, Uint32Array, BigUint64Array};

  async function bytesOf(source) {
    if (source === undefined && CODE !== null) {
      return Uint8Array.from(atob(CODE), (c) => c.charCodeAt(0));
    }
    if (typeof source !== "string") return source;
    if (typeof process !== "undefined" && process.versions && process.versions.node) {
      return require("fs").readFileSync(source);
    }
    const answer = await fetch(source);
    if (!answer.ok) throw new Error(`@NAME@: cannot load ${source}`);
    return answer.arrayBuffer();
  }

  class Model {
    constructor(instance) {
      this.exports = instance.exports;
      this.memory = instance.exports.memory;
      this.free = this.exports.__heap_base.value + 63 & ~63;
      this.model = this.place(64);
      const code = this.exports.@NAME@_init(this.model, this.place(MEMORY), MEMORY);
      this.check(code);
      this.start = this.free;
    }

    // memory behind all that is used
    place(bytes) {
      const at = this.free;
      this.free = at + bytes + 63 & ~63;
      const more = this.free - this.memory.buffer.byteLength;
      if (more > 0) this.memory.grow(Math.ceil(more / 65536));
      return at;
    }

    text(at) {
      const bytes = new Uint8Array(this.memory.buffer);
      let end = at;
      while (bytes[end] !== 0) end++;
      return new TextDecoder().decode(bytes.slice(at, end));
    }

    check(code) {
      if (code !== 0) {
        throw new Error(`@NAME@: ${this.text(this.exports.@NAME@_message(code))}`);
      }
    }

    // a part of the state, in the model's own memory until the next call
    state(part) {
      const name = new TextEncoder().encode(part + "\\0");
      this.free = this.start;
      const at = this.place(name.length), bytes = this.place(4);
      new Uint8Array(this.memory.buffer).set(name, at);
      const found = this.exports.@NAME@_state(this.model, at, bytes);
      if (found === 0) throw new Error(`@NAME@: no part of the state is ${part}`);
      const length = new Uint32Array(this.memory.buffer, bytes, 1)[0];
      const kind = kinds[STATE[part]];
      return new kind(this.memory.buffer, found, length / kind.BYTES_PER_ELEMENT);
    }

    call(name, inputs) {
      const entry = ENTRIES[name];
      if (inputs.length !== entry.inputs) {
        throw new Error(`@NAME@: ${name} takes ${entry.inputs} tensors`);
      }
      const sizes = {};
      for (const [size, [k, axis]] of Object.entries(entry.sizes)) {
        if (!inputs[k].shape) throw new Error(`@NAME@: a tensor has no shape`);
        sizes[size] = inputs[k].shape[axis];
      }
      const known = (n) => typeof n === "number" ? n : n.reduce((sum, [by, ...some]) =>
        sum + some.reduce((product, size) => product * sizes[size], by), 0);
      this.free = this.start;
      const given = [this.model], places = [];
      entry.arguments.forEach((argument, k) => {
        const mine = k < entry.inputs ? inputs[k] : {};
        const shape = mine.shape || argument.shape.map(known);
        const count = shape.reduce((a, b) => a * b, 1);
        const kind = kinds[argument.type];
        if (k < entry.inputs && (mine.data || mine).length !== count) {
          throw new Error(`@NAME@: ${argument.name} has not ${count} elements`);
        }
        const at = this.place(count * kind.BYTES_PER_ELEMENT);
        places.push([at, count, shape, kind, mine]);
        given.push(at);
        if (argument.shape.length > 0) given.push(this.place(8 * shape.length));
      });
      let next = 1;
      places.forEach(([at, count, shape, kind, mine], k) => {
        if (k < entry.inputs) {
          new kind(this.memory.buffer, at, count).set(mine.data || mine);
        }
        next++;
        if (entry.arguments[k].shape.length > 0) {
          const big = shape.map(BigInt);
          new BigInt64Array(this.memory.buffer, given[next++], big.length).set(big);
        }
      });
      this.check(this.exports[`@NAME@_${name}`](...given));
      const made = {};
      places.slice(entry.inputs).forEach(([at, count, shape, kind], k) => {
        const data = new kind(this.memory.buffer, at, count).slice();
        made[entry.arguments[entry.inputs + k].name] = {data, shape};
      });
      return made;
    }
  }

  for (const name of Object.keys(ENTRIES)) {
    Model.prototype[name] = function (...inputs) { return this.call(name, inputs); };
  }

  const @NAME@ = {
    async load(source) {
      const made = await WebAssembly.instantiate(await bytesOf(source), {});
      return new Model(made.instance);
    },
  };
  if (typeof module !== "undefined" && module.exports) module.exports = @NAME@;
  else root.@NAME@ = @NAME@;
})(typeof globalThis !== "undefined" ? globalThis : this);
"""
