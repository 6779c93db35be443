"""``weft``: train, run, export, quantize, time and serve on the command line.

Each command is a module here. Its ``run`` takes the options and gives what is to be
printed, line by line; that of ``weft run`` gives the exit status of the script.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import weft


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    top = argparse.ArgumentParser(
        prog="weft", description="Train networks and look at this installation."
    )
    top.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    demo = commands.add_parser(
        "demo", help="train a small GPT on Python's own source text (two minutes)"
    )
    demo.add_argument("--minutes", type=float, default=2.0, help="how long to train")
    demo.add_argument("--folder", default="weft-demo", help="where results go")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument(
        "--characters", type=int, default=400, help="how much text to write at the end"
    )
    demo.add_argument("--resume", action="store_true", help="go on from the checkpoint")

    train = commands.add_parser("train", help="train what a TOML file describes")
    train.add_argument("config", help="the TOML file")
    train.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint"
    )

    run = commands.add_parser("run", help="run a PyTorch program, unchanged, on Weft")
    run.add_argument(
        "--compile", action="store_true", help="compile modules, and say which"
    )
    run.add_argument(
        "--explain", action="store_true", help="--compile, and explain the programs"
    )
    run.add_argument("--html", metavar="FOLDER", help="--explain as pages in a folder")
    run.add_argument(
        "-n", dest="processes", type=int, metavar="N", help="as N processes"
    )
    run.add_argument(
        "--max-restarts", dest="restarts", type=int, default=0, metavar="K",
        help="start all processes again when one fails, K times at most",
    )  # fmt: skip
    run.add_argument(
        "--servers", type=int, default=0, metavar="S",
        help="with S parameter servers (weft.distributed.parameter_server)",
    )  # fmt: skip
    run.add_argument(
        "--state", metavar="FOLDER",
        help="where parameter servers keep their state, so that a later run goes on",
    )  # fmt: skip
    run.add_argument(
        "--nnodes", default="1", metavar="N", help="on N machines, or on 2:4 of them"
    )
    run.add_argument(
        "--rdzv-endpoint", "--rdzv_endpoint", dest="endpoint", metavar="HOST:PORT",
        help="where the machines meet: an address of one of them",
    )  # fmt: skip
    run.add_argument(
        "--rdzv-id", "--rdzv_id", dest="identity", default="", metavar="NAME",
        help="the name of the job, if several might meet there",
    )  # fmt: skip
    run.add_argument("-m", dest="module", action="store_true", help="run a module")
    run.add_argument("target", nargs="?", metavar="script", help="or the module's name")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")

    export = commands.add_parser(
        "export", help="write a program as a file that runs without Python"
    )
    export.add_argument("program", help="a file of weft.save or weft.export.save")
    export.add_argument("path", help="what to write, such as model.c")
    export.add_argument(
        "--weights", choices=("inside", "beside"), default="inside",
        help="in the file, or in a safetensors file beside it",
    )  # fmt: skip
    export.add_argument("--target", help="another machine, such as aarch64-linux")
    export.add_argument("--cpu", help="its CPU, or some levels: x86-64-v3,x86-64-v4")
    export.add_argument("--threads", type=int, help="the most that a library uses")

    serve = commands.add_parser(
        "serve", help="answer over HTTP: a saved program, or a language model"
    )
    serve.add_argument("path", help="a program's file, or a folder with config.json")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--batch", type=int, default=32, help="rows of one run")
    serve.add_argument(
        "--wait", type=float, default=2.0, metavar="MS",
        help="how long a request waits for others",
    )  # fmt: skip
    serve.add_argument("--queue", type=int, default=256, help="requests that may wait")
    serve.add_argument("--body", default="64MB", help="the most bytes of a request")
    serve.add_argument(
        "--memory", help="of a language model: weights, keys, values and a step"
    )
    serve.add_argument(
        "--weights", choices=("int8", "int4"), help="of a language model, quantised"
    )
    serve.add_argument(
        "--remote",
        metavar="URL",
        help="a server that is asked where this one is unsure",
    )
    serve.add_argument(
        "--threshold", type=float, default=0.8,
        help="the probability from which an answer is sure",
    )  # fmt: skip
    serve.add_argument(
        "--no-reload", dest="reload", action="store_false",
        help="do not take over the file when it changes",
    )  # fmt: skip

    bench = commands.add_parser("bench", help="time a saved program on this machine")
    bench.add_argument("path", help="a program's file")
    bench.add_argument(
        "--size", action="append", default=[], metavar="NAME=N,…", dest="sizes",
        help="of an open size, such as rows=1,8; else it is 1",
    )  # fmt: skip
    bench.add_argument(
        "--seconds", type=float, default=1.0, help="for each choice of sizes"
    )

    quantize = commands.add_parser(
        "quantize", help="save a model again, with integers for its weights"
    )
    quantize.add_argument("model", help="a file of weft.save(model, path)")
    quantize.add_argument("output", nargs="?", help="what to write; beside it if not")
    quantize.add_argument("--to", default="int8", help="int8 or int4")
    quantize.add_argument(
        "--data", metavar="FILE", help="a file of weft.save(x, path) to calibrate on"
    )
    quantize.add_argument(
        "--batch", type=int, default=64, help="how many examples at a time"
    )
    quantize.add_argument(
        "--observer", default="minmax", help="minmax, percentile or entropy"
    )
    quantize.add_argument(
        "--dynamic", action="store_true", help="ranges of inputs as they come; no data"
    )
    quantize.add_argument(
        "--weight-only", action="store_true", help="inputs stay float32; no data"
    )
    quantize.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="a layer to leave"
    )

    commands.add_parser("info", help="version, devices, threads and dependencies")

    cache = commands.add_parser("cache", help="compiled kernels on disk")
    cache.add_argument("action", choices=("info", "clear"), help="look, or remove all")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = parser().parse_args(arguments)
    command: Any = importlib.import_module(f"weft.cli.{options.command}")
    if options.command == "run":
        status: int = command.run(options)
        return status
    try:
        for line in command.run(options):
            print(line, flush=True)
    except KeyboardInterrupt:
        print("\nstopped; --resume goes on from the last checkpoint", file=sys.stderr)
        return 130
    except (OSError, weft.errors.WeftError) as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
