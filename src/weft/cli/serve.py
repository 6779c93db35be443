"""``weft serve``: a program or a language model that answers over HTTP."""

from __future__ import annotations

from typing import Any

from weft.memory.sizes import parse_bytes
from weft.serve import Cascade, Limits, Remote, serve


def run(options: Any) -> tuple[str, ...]:
    """Serve what the command's arguments say, until a signal ends it."""
    limits = Limits(
        batch=options.batch,
        wait=options.wait / 1000,
        queue=options.queue,
        body=parse_bytes(options.body),
    )
    cascade = None
    if options.remote:
        cascade = Cascade(Remote(options.remote), options.threshold)
    serve(
        options.path,
        host=options.host,
        port=options.port,
        limits=limits,
        cascade=cascade,
        memory=options.memory,
        weights=options.weights,
        reload=options.reload,
    )
    return ()
