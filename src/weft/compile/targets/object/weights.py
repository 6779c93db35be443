"""Reading a file of weights: the machine code of ``c.weights.reader``."""

from __future__ import annotations

from typing import Any

from weft.compile.emit.control_flow import I8, I32, I64
from weft.compile.emit.flow import loop
from weft.compile.emit.values import PTR, Pointer, Value, call
from weft.compile.targets.c.weights import FNV_FACTOR, FNV_START


def emit_reader(glue: Any, weights: Any) -> Any:
    """``read_weights(memory, path)``: 0 if the file was read and is this model's."""
    word = glue.word
    opens = glue.external("fopen", PTR, [PTR, PTR])
    closes = glue.external("fclose", I32, [PTR])
    gets = glue.external("fgetc", I32, [PTR])
    reads = glue.external("fread", word, [PTR, word, word, PTR])
    mode = glue._text("rb")
    with glue.function("read_weights", I32, [PTR, PTR]) as (b, (memory, path)):
        file = call(opens, [path, mode])
        with b.if_then(glue.is_null(file).ir):
            b.ret(I32(1))

        def fail(condition: Value) -> None:
            with b.if_then(condition.ir):
                call(closes, [file])
                b.ret(I32(1))

        hash = Pointer(b, b.alloca(I64), I64)
        hash.store(I64(FNV_START))
        with loop(0, weights.length, beside=file):
            byte = call(gets, [file])
            fail(byte < I32(0))
            mixed = hash.load() ^ byte.unsigned()
            hash.store(mixed * I64(FNV_FACTOR))
        fail(hash.load().differs(I64(weights.hash)))
        rows = glue.at(b, weights.rows).of(I64)
        with loop(0, weights.tensors, beside=file) as k:
            place, nbytes = rows[2 * k], rows[2 * k + 1]
            size = nbytes if word == I64 else nbytes.cut(word)
            to = Pointer(b, memory.ir, I8) + place
            read = call(reads, [to, word(1), size, file])
            fail(read.differs(size))
        fail(call(gets, [file]) >= I32(0))
        b.ret(call(closes, [file]).ir)
    return glue.module.globals["read_weights"]
