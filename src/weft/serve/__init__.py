"""``weft.serve``: programs and language models that answer over HTTP.

``weft serve model.weft`` on the command line is ``weft.serve.serve``. ``application``
gives the ASGI application alone. Both need ``pip install 'weft[serve]'``.
"""

from weft.serve.app import Limits, Server, application
from weft.serve.batching import Batcher, QueueFull, Stopped
from weft.serve.cascade import Cascade, Remote, RemoteFailed, confidence
from weft.serve.program import Served, read_program, served
from weft.serve.running import read_model, serve

__all__ = [
    "Batcher",
    "Cascade",
    "Limits",
    "QueueFull",
    "Remote",
    "RemoteFailed",
    "Served",
    "Server",
    "Stopped",
    "application",
    "confidence",
    "read_model",
    "read_program",
    "serve",
    "served",
]
