"""The functions of a header as machine code: init, calls, memory sizes, messages.

They are the same for all programs but for their arguments, and read what differs from
words among the file's constants:

    entry     open sizes, where these are, arguments, their ranks, sets of sizes
    size      number of a dimension, least value, number of values, sets that it spans
    set       words and relocations of an image, and what a call needs of these

A set of sizes has an image (see ``image``), which is copied to the model's memory and
linked there when a call has other sizes than the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir
from llvmlite.ir.values import FormattedConstant

from weft.compile.emit.control_flow import I1, I8, I32, I64, VOID
from weft.compile.emit.flow import loop, when
from weft.compile.emit.isa import Isa, new_module
from weft.compile.emit.values import PTR, Pointer, Value, call
from weft.compile.targets.c.interface import CODES, NO_CODE, READY, Interface, Signature
from weft.compile.targets.object.image import KINDS, STATE, TABLES
from weft.runtime.cpu.address import ALIGNMENT

CODE = {name: number for number, name in enumerate(CODES)}
ENTRY = ("sizes", "*size_rows", "arguments", "*ranks", "*sets", "tables")
SIZE = ("dimension", "least", "number", "span")
SET = (
    "valid", "*shapes", "need", "*words", "length", "*relocations", "*call_words",
    "calls", "*slots", "workspace", "arena", "gangs", "split", "end", "*flag_words",
    "flags", "*copy_rows", "copies",
)  # fmt: skip
COPY = ("state", "slot", "nbytes")
LINKED = 8  # words in front of an image: the first says which set it is of


class Part(NamedTuple):
    """A part of the state: its place in the model, and its first value's in the file
    (-1: zeros)."""

    place: int
    nbytes: int
    first: int


class Weights(NamedTuple):
    """The file of weights: its header's bytes and hash, and rows of places."""

    length: int
    hash: int
    rows: int
    tensors: int


class Glue(NamedTuple):
    """What the functions of a header need to know."""

    interface: Interface
    entries: Mapping[str, Sequence[int]]  # words of entries, by level of the CPU
    parts: Mapping[str, Part]  # of the state
    functions: Sequence[str]  # that images call, by number
    least: int  # bytes of memory
    reset: Sequence[int]  # bytes of the workspace where images begin
    weights: Weights | None
    pointer_bits: int
    cpus: Sequence[str]  # levels, from narrow to wide
    threads: int = 1


def glue_module(glue: Glue, isa: Isa) -> ir.Module:
    """The module of a header's functions."""
    return _Glue(glue, isa).module


def constants_module(isa: Isa, layout: str, mark: bytes, nbytes: int) -> str:
    """The text of a module with a file's constants, of which a mark is the beginning.

    The bytes are put into the object code later, since LLVM would take long to read
    them; so it must not believe what it sees.
    """
    first = "".join(f"\\{byte:02x}" for byte in mark)
    kinds = f"[{len(mark)} x i8]", f"[{nbytes - len(mark)} x i8]"
    return (
        f'target datalayout = "{layout}"\n'
        f'target triple = "{isa.triple}"\n'
        f"@constants = externally_initialized constant <{{ {', '.join(kinds)} }}> "
        f'<{{ {kinds[0]} c"{first}", {kinds[1]} zeroinitializer }}>, '
        f"align {ALIGNMENT}\n"
    )


class _Glue:
    """One module, while it is written."""

    def __init__(self, glue: Glue, isa: Isa) -> None:
        self.glue, self.isa = glue, isa
        self.interface = glue.interface
        self.word = ir.IntType(glue.pointer_bits)
        self.model = ir.LiteralStructType([I32, PTR, PTR, PTR, self.word])
        self.module = new_module("glue", isa)
        kind = ir.ArrayType(I8, 1)  # of more bytes: ``constants_module`` has them
        self.constants = ir.GlobalVariable(self.module, kind, "constants")
        self._functions()
        self._level()
        self._link()
        self._enter()
        self._message()
        self._init()
        if glue.interface.state:
            self._state()
        for one in glue.interface.functions:
            if one.open_sizes:
                self._memory(one)
            self._entry(one)
        if glue.interface.threads:
            self._threads()

    # -- pieces

    @contextmanager
    def function(
        self, name: str, returns: Any, kinds: Sequence[Any], *, public: bool = False
    ) -> Iterator[tuple[Any, list[Value]]]:
        """A function: its builder and its arguments."""
        made = ir.Function(self.module, ir.FunctionType(returns, list(kinds)), name)
        if not public:
            made.linkage = "internal"
        elif "windows" in self.isa.triple:
            made.storage_class = "dllexport"
        if returns == I32:
            made.return_value.add_attribute("signext")
        b = ir.IRBuilder(made.append_basic_block("entry"))
        yield b, [Value(b, x) for x in made.args]

    def external(self, name: str, returns: Any, kinds: Sequence[Any]) -> Any:
        found = self.module.globals.get(name)
        kind = ir.FunctionType(returns, list(kinds))
        return found or ir.Function(self.module, kind, name)

    def field(self, m: Value, number: int) -> Pointer:
        """The address of a field of a model."""
        kind = self.model.elements[number]
        place = m.b.gep(m.ir, [I32(0), I32(number)], source_etype=self.model)
        return Pointer(m.b, place, kind)

    def at(self, b: Any, offset: Any) -> Pointer:
        """A place among the constants."""
        return Pointer(b, address_of(self.constants), I8) + offset

    def rows(self, b: Any, offset: Any, names: Sequence[str]) -> dict[str, Any]:
        """Words among the constants, by their names; those with a star are places."""
        words = self.at(b, offset).of(I64)
        return {
            name.lstrip("*"): self.at(b, words[k]).of(I64) if name[0] == "*"
            else words[k]
            for k, name in enumerate(names)
        }  # fmt: skip

    def refuse(self, condition: Value, code: str) -> None:
        """Return a code if a condition holds."""
        b = condition.b
        with b.if_then(condition.ir):
            b.ret(I32(CODE[code]))

    def is_null(self, pointer: Value) -> Value:
        b = pointer.b
        return Value(b, b.icmp_unsigned("==", pointer.ir, PTR(None)))

    def not_ready(self, m: Value) -> None:
        """Return if a model is none, or was not initialised."""
        self.refuse(self.is_null(m), "NOT_INITIALIZED")
        ready = self.field(m, 0).load()
        self.refuse(ready.differs(I32(READY)), "NOT_INITIALIZED")

    def copy(self, to: Value, start: Value, nbytes: Any) -> None:
        memcpy = self.external("llvm.memcpy.p0.p0.i64", VOID, [PTR, PTR, I64, I1])
        call(memcpy, [to, start, nbytes, I1(0)])

    # -- images

    def _functions(self) -> None:
        known = []
        for name in self.glue.functions:
            kind = ir.FunctionType(VOID, [])
            known.append(ir.Function(self.module, kind, name))
        kind = ir.ArrayType(PTR, max(len(known), 1))
        self.table = ir.GlobalVariable(self.module, kind, "functions")
        values = [address_of(one) for one in known] or [ir.Constant(PTR, None)]
        self.table.initializer = ir.Constant(kind, values)
        self.table.global_constant = True

    def _level(self) -> None:
        """The level of this CPU among those that the file has code for; -1: none."""
        from weft.compile.targets.object.levels import emit_level

        self.level = emit_level(self.module, list(self.glue.cpus))

    def _link(self) -> None:
        """``link(m, image, set)``: an image in memory, for a set of sizes."""
        with self.function("link", VOID, [PTR, PTR, I64]) as (b, (m, place, number)):
            one = self.rows(b, number, SET)
            image = Pointer(b, place.ir, I64)
            self.copy(image.of(I8), one["words"].of(I8), one["length"] * 8)
            workspace = Value(b, b.ptrtoint(self.field(m, 2).load().ir, I64))
            bases = [
                image.address(), workspace + one["arena"],
                workspace + one["workspace"], self.at(b, 0).address(),
                Value(b, b.ptrtoint(self.field(m, 3).load().ir, I64)),
                Value(b, b.ptrtoint(self.field(m, 1).load().ir, I64)),
            ]  # fmt: skip
            assert (0, len(bases) - 1) == (TABLES, STATE)
            words = one["relocations"] + KINDS
            for kind in range(KINDS):
                count = one["relocations"][kind]
                with loop(count) as k:
                    word = image + words[k]
                    word.store(word.load() + bases[kind])
                words = words + count
            table = Pointer(b, address_of(self.table), PTR)
            with loop(one["calls"]) as k:
                word = image + one["call_words"][k]
                target = (table + word.load()).load()
                word.store(Value(b, b.ptrtoint(target.ir, I64)))
            b.ret_void()

    def _enter(self) -> None:
        """``enter(m, entry, pointers, shapes)``: check a call, and run it."""
        run = self.external("driver.run", VOID, [PTR, I64, I64])
        kinds = [PTR, I64, PTR, PTR]
        with self.function("enter", I32, kinds) as (b, (m, number, given, shapes)):
            entry = self.rows(b, number, ENTRY)
            given, shapes = Pointer(b, given.ir, PTR), Pointer(b, shapes.ir, PTR)
            count = entry["arguments"]
            with loop(count) as a:
                self.refuse(self.is_null(given[a]), "NULL_POINTER")
                has = (entry["ranks"] + a).load() > 0
                lacks = self.is_null(shapes[a])
                self.refuse(has & lacks, "NULL_POINTER")
            place = Pointer(b, b.alloca(I64), I64)
            place.store(0)
            with loop(entry["sizes"]) as k:
                row = entry["size_rows"] + k * len(SIZE)
                value = self._dimension(shapes, entry, row[0]) - row[1]
                self.refuse(~value.below(row[2]), "SHAPE")
                place.store(place.load() + value * row[3])
            which = place.load()
            at = (entry["sets"].address() - self.at(b, 0).address()) + which * (
                8 * len(SET)
            )
            one = self.rows(b, at, SET)
            self.refuse(one["valid"].equals(0), "SHAPE")
            place.store(0)
            with loop(count) as a, loop(entry["ranks"][a]) as d:
                shape = Pointer(b, shapes[a].ir, I64)
                wanted = one["shapes"][place.load()]
                self.refuse(shape[d].differs(wanted), "SHAPE")
                place.store(place.load() + 1)
            size = self.unsigned(self.field(m, 4).load())
            self.refuse(size.below(one["need"]), "MEMORY_TOO_SMALL")
            workspace = Pointer(b, self.field(m, 2).load().ir, I8)
            image = (workspace + entry["tables"]).of(I64)
            with when(image.load().differs(which + 1)):
                call(self.module.globals["link"], [m, image, at])
                image.store(which + 1)
            with loop(count) as a:
                slot = one["slots"][a]
                with when(slot >= 0):
                    pointer = Value(b, b.ptrtoint(given[a].ir, I64))
                    (image + slot).store(pointer)
            gangs = image + one["gangs"]
            call(run, [gangs, 0, one["split"]])
            failed = Pointer(b, b.alloca(I64), I64)
            failed.store(0)
            with loop(one["flags"]) as k:
                flag = image + one["flag_words"][k]
                failed.store(failed.load() | flag.load())
                flag.store(0)
            self.refuse(failed.load().differs(0), "VALUE")
            call(run, [gangs, one["split"], one["end"]])
            state = Pointer(b, self.field(m, 1).load().ir, I8)
            with loop(one["copies"]) as k:
                row = one["copy_rows"] + k * len(COPY)
                start = image[row[1]].pointer(I8)
                self.copy(state + row[0], start, row[2])
            b.ret(I32(CODE["OK"]))

    def unsigned(self, value: Value) -> Value:
        """A number of the machine's width as 64 bits."""
        return value if self.word == I64 else value.unsigned()

    def _dimension(
        self, shapes: Pointer, entry: Mapping[str, Any], number: Value
    ) -> Value:
        """A dimension by its number among all of a call: argument * 64 + axis."""
        shape = Pointer(shapes.b, shapes[number // 64].ir, I64)
        return shape[number % 64]

    # -- the header's functions

    def _text(self, text: str) -> Any:
        data = bytearray(text.encode() + b"\0")
        kind = ir.ArrayType(I8, len(data))
        made = ir.GlobalVariable(self.module, kind, self.module.get_unique_name("text"))
        made.initializer, made.global_constant = ir.Constant(kind, data), True
        return address_of(made)

    def _message(self) -> None:
        name = f"{self.interface.name}_message"
        with self.function(name, PTR, [I32], public=True) as (b, (code,)):
            found: Any = self._text(NO_CODE)
            for number, text in enumerate(CODES.values()):
                same = b.icmp_signed("==", code.ir, I32(number))
                found = b.select(same, self._text(text), found)
            b.ret(found)

    def _init(self) -> None:
        glue, interface = self.glue, self.interface
        kinds = [PTR, PTR, self.word, *([PTR] if glue.weights else [])]
        with self.function(f"{interface.name}_init", I32, kinds, public=True) as (
            b, (m, memory, size, *path)
        ):  # fmt: skip
            self.refuse(self.is_null(m), "NULL_POINTER")
            self.field(m, 0).store(I32(0))
            for pointer in (memory, *path):
                self.refuse(self.is_null(pointer), "NULL_POINTER")
            size64 = self.unsigned(size)
            self.refuse(size64.below(glue.least), "MEMORY_TOO_SMALL")
            start = Value(b, b.ptrtoint(memory.ir, I64))
            rest = (0 - start) & (ALIGNMENT - 1)
            state = Pointer(b, memory.ir, I8) + rest
            workspace = state + interface.state_bytes
            self.field(m, 1).store(state)
            self.field(m, 3).store(PTR(None))
            self.field(m, 4).store(size)
            for part in glue.parts.values():
                if part.first < 0:
                    self._zero(state + part.place, part.nbytes)
                else:
                    self.copy(state + part.place, self.at(b, part.first), part.nbytes)
            if glue.weights:
                wrong = self._reader(glue.weights)
                failed = call(wrong, [workspace, path[0]])
                self.refuse(failed.differs(I32(0)), "WEIGHTS")
                self.field(m, 3).store(workspace)
                workspace = workspace + interface.weight_bytes
            self.field(m, 2).store(workspace)
            for place in glue.reset:
                (workspace + place).of(I64).store(0)
            self.field(m, 0).store(I32(READY))
            b.ret(I32(CODE["OK"]))

    def _zero(self, place: Pointer, nbytes: int) -> None:
        memset = self.external("llvm.memset.p0.i64", VOID, [PTR, I8, I64, I1])
        call(memset, [place, I8(0), nbytes, I1(0)])

    def _reader(self, weights: Weights) -> Any:
        from weft.compile.targets.object.weights import emit_reader

        return emit_reader(self, weights)

    def _state(self) -> None:
        """A part of the state by its name, compared byte by byte."""
        name, kinds = f"{self.interface.name}_state", [PTR, PTR, PTR]
        with self.function(name, PTR, kinds, public=True) as (b, (m, part, nbytes)):
            for given in (m, part):
                with b.if_then(self.is_null(given).ir):
                    b.ret(PTR(None))
            ready = self.field(m, 0).load()
            with b.if_then(ready.differs(I32(READY)).ir):
                b.ret(PTR(None))
            asked = Pointer(b, part.ir, I8)
            state = Pointer(b, self.field(m, 1).load().ir, I8)
            same = self._equal()
            for key, one in self.glue.parts.items():
                text = Pointer(b, self._text(key), I8)
                hit = call(same, [asked, text])
                with b.if_then(hit.ir):
                    with b.if_then(b.not_(self.is_null(nbytes).ir)):
                        Pointer(b, nbytes.ir, self.word).store(self.word(one.nbytes))
                    b.ret((state + one.place).ir)
            b.ret(PTR(None))

    def _equal(self) -> Any:
        """``equal(a, b)``: whether two texts are the same."""
        with self.function("equal", I1, [PTR, PTR]) as (b, (left, right)):
            one, other = (Pointer(b, x.ir, I8) for x in (left, right))
            with loop(0, (1 << 62), beside=one) as k:
                x, y = one[k], other[k]
                with b.if_then(x.differs(y).ir):
                    b.ret(I1(0))
                with b.if_then(x.equals(I8(0)).ir):
                    b.ret(I1(1))
            b.ret(I1(0))
        return self.module.globals["equal"]

    def _entry_at(self, b: Any, one: Signature) -> Value:
        """Where the words of an entry are, for this CPU's level."""
        words = self.glue.entries[one.name]
        level = Value(b, b.call(self.level, []))
        found = Value(b, I64(words[0]))
        for number, at in enumerate(words[1:], 1):
            is_it = level.equals(number)
            found = Value(b, b.select(is_it.ir, I64(at), found.ir))
        return found

    def _memory(self, one: Signature) -> None:
        name = f"{self.interface.name}_{one.name}_memory"
        kinds = [I64] * len(one.open_sizes)
        with self.function(name, self.word, kinds, public=True) as (b, sizes):
            entry = self.rows(b, self._entry_at(b, one), ENTRY)
            which = Value(b, I64(0))
            for k, size in enumerate(sizes):
                row = entry["size_rows"] + k * len(SIZE)
                value = size - row[1]
                with b.if_then((~value.below(row[2])).ir):
                    b.ret(self.word(-1))
                which = which + value * row[3]
            at = (entry["sets"].address() - self.at(b, 0).address()) + which * (
                8 * len(SET)
            )
            found = self.rows(b, at, SET)
            with b.if_then(found["valid"].equals(0).ir):
                b.ret(self.word(-1))
            need = found["need"]
            b.ret(need.ir if self.word == I64 else need.cut(self.word).ir)

    def _entry(self, one: Signature) -> None:
        """The function of a program: its arguments as two tables."""
        given, made = one.arguments
        both = [*given, *made]
        kinds = [PTR]
        for argument in both:
            kinds += [PTR, PTR] if argument.rank else [PTR]
        name = f"{self.interface.name}_{one.name}"
        with self.function(name, I32, kinds, public=True) as (b, (m, *rest)):
            self.not_ready(m)
            tables = [b.alloca(PTR, I32(max(len(both), 1))) for _ in range(2)]
            values = iter(rest)
            for k, argument in enumerate(both):
                pointer = next(values).ir
                shape = next(values).ir if argument.rank else PTR(None)
                for table, value in zip(tables, (pointer, shape), strict=True):
                    (Pointer(b, table, PTR) + k).store(value)
            arguments = [m, self._entry_at(b, one), *tables]
            b.ret(call(self.module.globals["enter"], arguments).ir)

    def _threads(self) -> None:
        """Let the pool have some threads; gives how many."""
        from weft.compile.targets.cpu.pool_code import FIELDS

        hold, release = (
            self.external(f"weft_pool_{name}", VOID, [PTR])
            for name in ("hold", "release")
        )
        kind = ir.ArrayType(I8, 1)
        pool = ir.GlobalVariable(self.module, kind, "weft_pool")
        name = f"{self.interface.name}_threads"
        with self.function(name, I32, [I32], public=True) as (b, (count,)):
            start = Pointer(b, address_of(pool), I8)
            most = self.glue.threads
            few = Value(b, b.select((count < I32(1)).ir, I32(1), count.ir))
            many = Value(b, b.select((few > I32(most)).ir, I32(most), few.ir))
            call(hold, [start])
            (start + FIELDS["wanted"][0]).of(I32).store(many)
            call(release, [start])
            b.ret(many.ir)


def address_of(value: Any) -> Any:
    """A global's address, of no type."""
    return FormattedConstant(PTR, value.get_reference())
