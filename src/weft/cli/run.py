"""``weft run``: a PyTorch program, unchanged, on Weft, in one process or several."""

from __future__ import annotations

import contextlib
import os
import pathlib
import runpy
import sys
from argparse import Namespace
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import weft.torch
from weft.distributed.launch import Launcher, die_with_launcher, tell_launcher
from weft.errors import shorten

USAGE = "weft: 'run' needs a script, or -m and a module: weft run train.py --lr 0.1"


def run(options: Namespace) -> int:
    """Run a script or a module as ``__main__``; returns its exit status."""
    if not options.target:
        print(USAGE, file=sys.stderr)
        return 2
    if not options.module and not os.path.exists(options.target):
        print(f"weft: can't open {options.target!r}: no such file", file=sys.stderr)
        return 2
    if options.processes is not None:
        return _several(options)
    die_with_launcher()
    tell_launcher()
    weft.torch.install()
    sys.argv = [options.target, *options.arguments]
    here = "" if options.module else os.path.dirname(os.path.realpath(options.target))
    sys.path[0] = here or os.getcwd()
    compiled = options.compile or options.explain or options.html
    with _compiling(options) if compiled else contextlib.nullcontext():
        return _status(options.target, options.module)


def _several(options: Namespace) -> int:
    """Run it as several processes."""
    if options.processes < 1:
        print(f"weft: expected -n 1 or more, got {options.processes}", file=sys.stderr)
        return 2
    flags = [f"--{name}" for name in ("compile", "explain") if getattr(options, name)]
    flags += ["--html", options.html] if options.html else []
    flags += ["-m"] if options.module else []
    command = [sys.executable, "-m", "weft", "run", *flags, options.target]
    return Launcher().run(options.processes, [*command, *options.arguments])


def _status(target: str, is_module: bool) -> int:
    try:
        if is_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as error:
        return _exit_status(error.code)
    except BaseException as error:
        _show(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Show an error as Python would, without frames of Weft's or of the runner's."""
    shorten(error)
    trace = error.__traceback__
    while trace is not None and _of_runner(trace):
        trace = trace.tb_next
    sys.stdout.flush()
    error.__traceback__ = trace
    sys.excepthook(type(error), error, trace)


def _of_runner(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file in (__file__, runpy.__file__, "<frozen runpy>")


# -- compiling


@contextlib.contextmanager
def _compiling(options: Namespace) -> Iterator[None]:
    from weft.compile.frontend.automatic import compiled_modules

    with compiled_modules() as tried:
        try:
            yield
        finally:
            _report(tried, options)


def _report(tried: list[Any], options: Namespace) -> None:
    """Say, after the program, what was compiled and what was refused."""
    sys.stdout.flush()
    total = sum(len(one.function.compiles) for one in tried)
    print(f"weft run: {total} compilations", file=sys.stderr)
    for one in tried:
        print(f"  {one}", file=sys.stderr)
    made = [one for one in tried if one.function.compiles]
    for number, one in enumerate(made):
        if options.explain:
            print(f"\n{one.function.explain()}", file=sys.stderr)
        if options.html:
            folder = pathlib.Path(options.html)
            folder.mkdir(parents=True, exist_ok=True)
            page = folder / f"{number:02}-{one.name}.html"
            one.function.explain().html(str(page))
            print(f"  {page}", file=sys.stderr)
