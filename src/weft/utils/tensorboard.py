"""``weft.utils.tensorboard``: PyTorch's ``SummaryWriter`` over Weft's event files."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import socket
from typing import Any

import numpy as np

from weft import late
from weft.core.tensor import Tensor
from weft.errors import ArgumentError

__all__ = ["SummaryWriter"]


class SummaryWriter:
    """Writes what TensorBoard shows, with PyTorch's methods.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with weft.utils.tensorboard.SummaryWriter(folder) as writer:
    ...         writer.add_scalar("loss", 0.5, global_step=1)
    ...     [event] = list(weft.training.read_events(writer.path))[1:]
    >>> event["step"], event["loss"]
    (1, 0.5)
    """

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: Any = None,
        max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if log_dir is None:
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self._writer = late.find("SummaryWriter")(self.log_dir)
        self._others: dict[str, Any] = {}  # of ``add_scalars``, by folder

    @property
    def path(self) -> pathlib.Path:
        """The event file."""
        return self._writer.path

    def get_logdir(self) -> str:
        """The folder of the event file."""
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any
    ) -> None:
        """One number at a step."""
        self._writer.add_scalar(tag, scalar_value, global_step or 0)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None,
        *_: Any,
    ) -> None:  # fmt: skip
        """Several numbers in one chart; each has an event file of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self._others:
                self._others[folder] = late.find("SummaryWriter")(folder)
            self._others[folder].add_scalar(main_tag, value, global_step or 0)

    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow",
        *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        """The distribution of values at a step."""
        count = bins if isinstance(bins, int) else 64
        self._writer.add_histogram(tag, values, global_step or 0, count)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: Any = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """A picture: bytes, or floats from 0 to 1; ``dataformats`` names the axes."""
        pixels = _pixels(img_tensor, dataformats)
        self._writer.add_image(tag, pixels, global_step or 0)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: Any = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Several pictures, side by side in one."""
        array = _array(img_tensor)
        where = dataformats.index("N")
        rest = dataformats.replace("N", "")
        every = [_pixels(one, rest) for one in np.moveaxis(array, where, 0)]
        self._writer.add_image(tag, np.concatenate(every, axis=1), global_step or 0)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True,
        walltime: Any = None,
    ) -> None:  # fmt: skip
        """A figure of Matplotlib's, or several, as pictures."""
        every = figure if isinstance(figure, list) else [figure]
        drawn = []
        for one in every:
            one.canvas.draw()
            drawn.append(np.asarray(one.canvas.buffer_rgba())[..., :3])
            if close:
                one.clear()
        self._writer.add_image(tag, np.concatenate(drawn, axis=1), global_step or 0)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, *_: Any
    ) -> None:
        """Text (Markdown) at a step."""
        self._writer.add_text(tag, text_string, global_step or 0)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:  # fmt: skip
        """The captured program of a model as text under ``graph``."""
        from weft.graph import capture

        if input_to_model is None:
            raise ArgumentError("add_graph: expected an input for the model, got None")
        given = (
            input_to_model if isinstance(input_to_model, tuple) else (input_to_model,)
        )
        text = str(capture(model, *given).graph)
        if verbose:
            print(text)
        self._writer.add_text("graph", f"```\n{text}\n```", 0)

    def add_hparams(
        self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any],
        hparam_domain_discrete: Any = None, run_name: Any = None,
        global_step: Any = None,
    ) -> None:  # fmt: skip
        """Settings as text, and the metrics that they gave as scalars."""
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        text = json.dumps(hparam_dict, indent=1, default=str)
        self._writer.add_text("hparams", f"```\n{text}\n```", global_step or 0)
        for tag, value in metric_dict.items():
            self._writer.add_scalar(tag, value, global_step or 0)

    def flush(self) -> None:
        """Hand everything to the file system."""
        for one in (self._writer, *self._others.values()):
            one.flush()

    def close(self) -> None:
        """Finish the files."""
        for one in (self._writer, *self._others.values()):
            one.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _array(image: Any) -> np.ndarray:
    return image.detach().numpy() if isinstance(image, Tensor) else np.asarray(image)


def _pixels(image: Any, axes: str) -> np.ndarray:
    """A picture (height, width, channels) of bytes."""
    array = _array(image)
    if sorted(axes) not in (["C", "H", "W"], ["H", "W"]) or array.ndim != len(axes):
        raise ArgumentError(
            f"add_image: dataformats {axes!r} do not fit the shape {array.shape}"
        )
    order = [axes.index(name) for name in "HWC" if name in axes]
    array = array.transpose(order)
    array = array if array.ndim == 3 else array[..., None]
    if array.dtype != np.uint8:
        array = (array * 255.0).clip(0, 255).astype(np.uint8)
    return array
