"""Object code: modules optimised, compiled, kept on disk and loaded.

    isa = host_isa()                          CPU, features, vector width
    library = compile_module(module, isa)     LLVM IR to machine code, in-process
    library.address("kernel")                 a function's address

Nothing outside this process runs: no compiler, no linker. The object code is kept as
bytes, so that it can be stored and loaded again by another process.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from llvmlite.binding import ffi

from weft.compile.emit.isa import Isa
from weft.compile.emit.split_module import separate, split
from weft.compile.program.compiler_version import sources
from weft.compile.program.phases import count_module, phase
from weft.compile.targets.cpu import elf
from weft.compile.targets.cpu.masked_selects import kept_apart
from weft.errors import ArgumentError
from weft.runtime.cpu import kernel_cache
from weft.runtime.cpu.threads import thread_limit

# Levels that WEFT_CPU may limit code to, from narrow to wide: LLVM CPU, vector bits.
LEVELS = {
    "baseline": ("x86-64", 128),
    "sse4": ("x86-64-v2", 128),
    "avx2": ("x86-64-v3", 256),
    "avx512": ("x86-64-v4", 512),
}
# The features that a CPU of a level has, and one of the level before may lack.
_ADDED = {
    "x86-64": (),
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2"),
    "x86-64-v3": (
        "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave",
    ),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}  # fmt: skip
_X86 = "x86_64-unknown-linux-gnu"  # on other machines, to look at its code


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # every second element to the end of a row: two masked loads and a shuffle
    llvm.set_option("weft", "-enable-masked-interleaved-mem-accesses")


class LevelError(ArgumentError):
    """Code for a CPU that this machine is not."""


def _host_triple() -> str:
    """This process's triple; ELF on Windows, with its calling convention all the same.

    ``elf.load`` knows no other format, and LLVM's own loader has none for COFF.
    """
    triple = llvm.get_process_triple()
    return f"{triple}-elf" if "-windows-" in triple else triple


def _level(name: str) -> Isa:
    """The instruction set of a level of x86-64; ``baseline`` is any machine's least."""
    if name not in LEVELS:
        raise ArgumentError(
            f"WEFT_CPU: expected one of {', '.join(LEVELS)}, got {name!r}"
        )
    cpu, bits = LEVELS[name]
    isa = Isa(_host_triple(), cpu, "-prefer-256-bit" if bits == 512 else "", bits)
    if isa.family == "x86_64":
        return isa
    if name == "baseline":
        return isa._replace(cpu="generic")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return isa._replace(triple=_X86)


@functools.cache
def lacking(isa: Isa) -> str:
    """What this machine lacks to run code for an instruction set, in words; "" if
    nothing.

    >>> from weft.compile.targets.cpu.object_code import host_isa, lacking
    >>> lacking(host_isa()), lacking(host_isa()._replace(triple="riscv64-linux"))
    ('', 'riscv64')
    """
    _initialize()
    if isa.family != Isa(_host_triple(), "", "", 0).family:
        return isa.family
    if isa.cpu not in _ADDED:
        return ""
    has = llvm.get_host_cpu_features()
    levels = list(_ADDED)[: list(_ADDED).index(isa.cpu) + 1]
    needed = (feature for level in levels for feature in _ADDED[level])
    return ", ".join(feature for feature in needed if not has.get(feature))


def _check_runnable(isa: Isa, what: str) -> None:
    """Refuse code that would end the process at its first unknown instruction."""
    lacks = lacking(isa)
    if lacks:
        able = [name for name in LEVELS if not lacking(_level(name))]
        raise LevelError(
            f"{what}: expected a level that this machine has ({', '.join(able)}), got "
            f"{isa.cpu}; it lacks {lacks}"
        )


@functools.cache
def host_isa(limit: str | None = None) -> Isa:
    """This machine, or a narrower one of its kind (``WEFT_CPU``).

    With ``limit`` it is that level, also one that this machine does not have: its code
    can be looked at, and is refused where it would be loaded.

    >>> weft.compile.targets.cpu.object_code.host_isa("avx2").lanes(4)
    8
    """
    _initialize()
    if limit is not None:
        return _level(limit)
    limit = os.environ.get("WEFT_CPU")
    if limit:
        isa = _level(limit)
        _check_runnable(isa, f"WEFT_CPU={limit}")
        return isa
    triple = _host_triple()
    features = llvm.get_host_cpu_features()
    has = {name for name, there in features.items() if there}
    bits = 512 if "avx512f" in has else 256 if "avx2" in has else 128
    text = ",".join(f"{'+' if there else '-'}{f}" for f, there in features.items())
    if bits == 512:
        text += ",-prefer-256-bit"  # else LLVM would halve our vectors
    cpu = llvm.get_host_cpu_name()
    if cpu.startswith("znver"):  # whose gathers take longer than as many loads
        text += ",+prefer-no-gather"
    return Isa(triple, cpu, text, bits)


class Library:
    """Machine code in memory: the object code of one module, or of its parts."""

    key = ""  # under which it is stored

    def __init__(self, code: bytes | Sequence[bytes], isa: Isa) -> None:
        _check_runnable(isa, "machine code")
        codes = [code] if isinstance(code, bytes) else code
        self.code = b"".join(codes)
        try:
            self._held: Any = elf.load(codes)
            self._find = self._held.functions.get
        except elf.Unknown:
            self._held = _engine(codes, isa)
            self._find = self._held.get_function_address

    def address(self, name: str) -> int:
        """The address of a function."""
        found = self._find(name)
        if not found:
            raise ArgumentError(f"the compiled module has no function {name!r}")
        return found


def add_symbol(name: str, address: int) -> None:
    """Let code refer to something by name."""
    elf.given[name] = address
    llvm.add_symbol(name, address)


def _engine(codes: Sequence[bytes], isa: Isa) -> Any:
    """An engine that keeps the code of modules, which may call one another."""
    _initialize()
    backing = llvm.parse_assembly("")
    backing.triple = isa.triple
    engine = llvm.create_mcjit_compiler(backing, machine(isa))
    for code in codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def machine(isa: Isa) -> Any:
    """A target machine (an engine owns the one it is given)."""
    found = llvm.Target.from_triple(isa.triple)
    return found.create_target_machine(
        cpu=isa.cpu,
        features=isa.features,
        opt=3,
        reloc="pic",
        codemodel="default",
    )


@functools.cache
def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without the lock that lets one thread in.

    LLVM itself wants that no two threads use one context: see ``parsed``.
    """
    locked = getattr(ffi.lib, name)
    function = getattr(ctypes.CDLL("llvmlite", handle=ffi.lib._handle), name)
    function.argtypes, function.restype = locked.argtypes, locked.restype
    return function


def parse(text: str) -> Any:
    """A module of a context of its own."""
    _initialize()
    return llvm.parse_assembly(text, llvm.create_context())


def optimize(module: Any, isa: Isa, *, level: int = 3) -> Any:
    """A parsed module after LLVM's passes."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = tuning.slp_vectorization = True
    tuning.loop_interleaving = True
    tuning.loop_unrolling = False  # costs half the time, and gains nothing
    builder = llvm.create_pass_builder(machine(isa), tuning)
    run = _unlocked("LLVMPY_RunNewModulePassManager")
    run(builder.getModulePassManager(), module, builder)
    if isa.bits < 512:
        return module
    text = str(module)
    apart = kept_apart(text)
    return module if apart == text else parse(apart)


def object_code(module: ir.Module | str, isa: Isa, *, level: int = 3) -> bytes:
    """Object code of a module; the module is verified first."""
    parsed = parse(str(module))
    parsed.verify()
    return object_bytes(optimize(parsed, isa, level=level), isa)


def object_bytes(module: Any, isa: Isa) -> bytes:
    """Object code of a parsed module, as it is."""
    emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
    with ffi.OutputString() as error:
        memory = emit(machine(isa), module, 1, error)
        if not memory:
            raise RuntimeError(str(error))
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(memory)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


@phase("LLVM")
def compile_module(
    module: ir.Module | str, isa: Isa | None = None, *, level: int = 3
) -> Library:
    """Machine code of a module, ready to be called; kept on disk for the next time.

    The parts of a large one are compiled side by side.
    """
    isa = isa or host_isa()
    texts = [module] if isinstance(module, str) else split(module)
    codes = _side_by_side(functools.partial(_code, isa=isa, level=level), texts)
    for _, made in codes:
        count_module(made=made)
    return Library([code for code, _ in codes], isa)


@phase("LLVM")
def compile_known(
    text: str, make: Callable[[], ir.Module], isa: Isa, *, level: int = 3,
    linked: bool = False,
) -> Library:  # fmt: skip
    """Machine code of the module that ``make`` gives, which ``text`` decides.

    Where the code is on disk, the module is not even made. Parts that call one
    another must be ``linked``.
    """
    codes: list[bytes] = []

    def build() -> bytes:
        code = functools.partial(object_code, isa=isa, level=level)
        module = make()
        texts = separate(module, thread_limit().threads) if linked else split(module)
        codes.extend(_side_by_side(code, texts))
        return b"".join(len(one).to_bytes(8, "little") + one for one in codes)

    key = _known_key(text, isa, level)
    data = kernel_cache.get(key, build)
    count_module(made=bool(codes))
    library = Library(codes or _apart(data), isa)
    library.key = key
    return library


def _known_key(text: str, isa: Isa, level: int) -> str:
    return kernel_cache.key_of(f"{sources()}\n{text}", isa.key, level=level)


def is_known(text: str, isa: Isa, *, level: int = 3) -> bool:
    """Whether ``compile_known`` would find code on disk."""
    return kernel_cache.default().has(_known_key(text, isa, level))


def stored_library(key: str, isa: Isa) -> Library | None:
    """The machine code that is kept under a key, if it is there."""
    data = kernel_cache.default().find(key)
    return None if data is None else Library(_apart(data), isa)


def _apart(data: bytes) -> list[bytes]:
    """The codes of a module's parts, which are kept as one."""
    codes, at = [], 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "little")
        codes.append(data[at + 8 : end])
        at = end
    return codes


def _side_by_side(code: Callable[[str], Any], texts: list[str]) -> list[Any]:
    """A function's results for texts of modules, on several threads."""
    if len(texts) == 1:
        return [code(texts[0])]
    with ThreadPoolExecutor(min(len(texts), thread_limit().threads)) as workers:
        return list(workers.map(code, texts))


def _code(text: str, isa: Isa, level: int) -> tuple[bytes, bool]:
    """Object code of a module's text, and whether it had to be made."""
    codes: list[bytes] = []

    def make() -> bytes:
        codes.append(object_code(text, isa, level=level))
        return codes[0]

    key = kernel_cache.key_of(text, isa.key, level=level)
    return kernel_cache.get(key, make), bool(codes)


def assembly(module: ir.Module | str, isa: Isa | None = None) -> str:
    """The machine code as text, to read."""
    isa = isa or host_isa()
    parsed = parse(str(module))
    return machine(isa).emit_assembly(optimize(parsed, isa))
