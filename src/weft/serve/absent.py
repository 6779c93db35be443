"""The libraries that serving needs, or how to get them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.errors import ArgumentError

HOW = "serving needs starlette and uvicorn: pip install 'weft[serve]'"


def starlette() -> Any:
    """What is used of Starlette."""
    try:
        from starlette.applications import Starlette
        from starlette.requests import ClientDisconnect
        from starlette.responses import (
            HTMLResponse,
            JSONResponse,
            Response,
            StreamingResponse,
        )
        from starlette.routing import Route
    except ImportError:
        raise ArgumentError(HOW) from None
    return SimpleNamespace(
        Starlette=Starlette, ClientDisconnect=ClientDisconnect,
        HTMLResponse=HTMLResponse, JSONResponse=JSONResponse, Response=Response,
        StreamingResponse=StreamingResponse, Route=Route,
    )  # fmt: skip


def uvicorn() -> Any:
    try:
        import uvicorn as found
    except ImportError:
        raise ArgumentError(HOW) from None
    return found
