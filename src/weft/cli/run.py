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
from weft.distributed import environment, machines
from weft.distributed.errors import DistError
from weft.distributed.launch import Launcher, die_with_launcher, tell_launcher
from weft.errors import ArgumentError, shorten

USAGE = "weft: 'run' needs a script, or -m and a module: weft run train.py --lr 0.1"


def run(options: Namespace) -> int:
    """Run a script or a module as ``__main__``; returns its exit status."""
    if not options.target:
        print(USAGE, file=sys.stderr)
        return 2
    if not options.module and not os.path.exists(options.target):
        print(f"weft: can't open {options.target!r}: no such file", file=sys.stderr)
        return 2
    elsewhere = options.endpoint is not None or options.nnodes != "1"
    several = options.restarts or options.servers or elsewhere
    if options.processes is not None or several:
        return _several(options)
    die_with_launcher()
    tell_launcher()
    role = environment.role()
    if role is not None and role.name != "worker":
        return _serve(role)
    weft.torch.install()
    sys.argv = [options.target, *options.arguments]
    here = "" if options.module else os.path.dirname(os.path.realpath(options.target))
    sys.path[0] = here or os.getcwd()
    compiled = options.compile or options.explain or options.html
    with _compiling(options) if compiled else contextlib.nullcontext():
        return _status(options.target, options.module)


def _several(options: Namespace) -> int:
    """Run it as several processes."""
    count = 1 if options.processes is None else options.processes
    flags = [f"--{name}" for name in ("compile", "explain") if getattr(options, name)]
    flags += ["--html", options.html] if options.html else []
    flags += ["-m"] if options.module else []
    command = [sys.executable, "-m", "weft", "run", *flags, options.target]
    command += options.arguments
    try:
        _check_least("-n", count, 1)
        _check_least("--max-restarts", options.restarts, 0)
        _check_least("--servers", options.servers, 0)
        if options.state is not None and not options.servers:
            raise ArgumentError(
                "--state is the folder of parameter servers: --servers 2"
            )
        if options.endpoint is None and options.nnodes == "1":
            return Launcher().run(
                count, command, options.restarts, options.servers, options.state
            )
        if options.servers:
            raise ArgumentError(
                "--servers starts them on one machine; for several, set WEFT_ROLE and "
                "WEFT_COORDINATOR (see docs/distributed.md)"
            )
        return machines.run(Launcher(), count, command, _wanted(options))
    except (ArgumentError, DistError) as error:
        text, _, _ = str(error).partition("\n  at ")  # a line of the command's
        print(f"weft: {text}", file=sys.stderr)
        return 2 if isinstance(error, ArgumentError) else 1


def _serve(role: environment.Role) -> int:
    """Be a parameter server, or the coordinator: the script is not run."""
    from weft.distributed.parameter_server import serve

    try:
        serve(role)
    except BaseException as error:
        _show(error)
        return 1
    return 0


def _check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ArgumentError(f"expected {name} {least} or more, got {value}")


def _wanted(options: Namespace) -> machines.Wanted:
    """How many machines, and where they meet."""
    least, colon, most = options.nnodes.partition(":")
    limits = [least, most if colon else least]
    host, colon, port = (options.endpoint or "").rpartition(":")
    low, high = (int(one) if one.isdecimal() else 0 for one in limits)
    if not 1 <= low <= high:
        raise ArgumentError(f"expected --nnodes 2 or 2:4, got {options.nnodes}")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ArgumentError(
            "expected --rdzv-endpoint host:port, where one of the machines is the "
            f"host, got {options.endpoint}"
        )
    endpoint = host, int(port)
    return machines.Wanted(endpoint, options.identity, low, high, options.restarts)


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
