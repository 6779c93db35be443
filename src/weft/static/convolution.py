"""Convolutions and pools in TensorFlow's layouts, over one to three axes.

Values have their channels last (``NWC``, ``NHWC``, ``NDHWC``) unless ``data_format``
says otherwise; a filter is (*window, in, out). ``SAME`` padding puts the odd element at
the end.
"""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import larger
from weft.dtype import as_dtype
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.static.building import function, numbers
from weft.static.math import _node
from weft.static.shapes import sizes_of

_LAYOUTS = {
    1: ("NWC", "NCW", "NHWC", "NCHW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW"),
}  # fmt: skip
_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def channels_last(layout: str | None, axes: int) -> bool:
    """Whether a layout has its channels last, as it does unless told."""
    if layout is None or layout == "channels_last":
        return True
    if layout == "channels_first":
        return False
    if layout not in _LAYOUTS[axes]:
        raise ArgumentError(
            f"data_format: expected one of {_LAYOUTS[axes]}, got {layout!r}"
        )
    return layout.endswith("C")


def _channels_first(x: Any, axes: int, last: bool) -> Any:
    x = _node(x)
    if x.ndim != axes + 2:
        raise ShapeError(
            f"expected a value with {axes + 2} axes (a batch, {axes} of space and "
            f"channels), got shape {x.shape}"
        )
    return x.permute(0, axes + 1, *range(1, axes + 1)) if last else x


def _back(x: Any, axes: int, last: bool) -> Any:
    return x.permute(0, *range(2, axes + 2), 1) if last else x


def _over_space(values: Any, axes: int, last: bool, what: str) -> tuple[int, ...]:
    """Numbers for the axes of space; batch and channels may be there, as ones."""
    if isinstance(values, int) or len(values) in (1, axes):
        one = values if isinstance(values, int) or len(values) == axes else values[0]
        return numbers(one, axes, what)
    values = numbers(values, axes + 2, what)
    space = values[1:-1] if last else values[2:]
    if set(values[:1] + (values[-1:] if last else values[1:2])) != {1}:
        raise ArgumentError(f"{what}: batch and channels must have 1, got {values!r}")
    return space


def _total(size: Any, reach: int, step: int) -> Any:
    """How many elements ``SAME`` adds to an axis."""
    if step == 1:
        return reach - 1
    return larger((-(-size // step) - 1) * step + reach - size, 0)


def padding_of(
    x: Any, reach: Any, steps: Any, padding: str, fill: float
) -> tuple[Any, tuple[tuple[int, int], ...]]:
    """The elements that ``SAME`` adds before and after each axis of space.

    Where a run decides how many there are, the value (channels first) has them already.
    """
    padding = padding.upper()
    if padding == "VALID":
        return x, ((0, 0),) * len(reach)
    if padding != "SAME":
        raise ArgumentError(f"padding: expected 'SAME' or 'VALID', got {padding!r}")
    known: list[tuple[int, int]] = []
    sides = zip(x.shape[2:], reach, steps, strict=True)
    for axis, (size, k, step) in enumerate(sides):
        total = _total(size, k, step)
        amounts = total // 2, total - total // 2
        if not isinstance(total, int):
            x, amounts = _widened(x, axis + 2, amounts, fill), (0, 0)
        known.append(amounts)
    return x, tuple(known)


def padded(x: Any, reach: Any, steps: Any, padding: str, fill: float) -> Any:
    """A value (channels first) with the elements that ``SAME`` adds."""
    x, known = padding_of(x, reach, steps, padding, fill)
    amounts = [n for pair in reversed(known) for n in pair]
    return F.pad(x, amounts, value=fill) if any(amounts) else x


def _widened(x: Any, axis: int, amounts: Any, fill: float) -> Any:
    """More elements on an axis, as many as the sizes of a run make necessary."""
    ends = [
        weft.full((*x.shape[:axis], n, *x.shape[axis + 1 :]), fill, dtype=x.dtype)
        for n in amounts
    ]
    return weft.cat([ends[0], x, ends[1]], axis)


def convolved(
    x: Any, filters: Any, steps: Any, padding: str, layout: str | None,
    dilations: Any, axes: int, groups: int = 1,
) -> Any:  # fmt: skip
    """A convolution over some number of axes."""
    last = channels_last(layout, axes)
    steps = _over_space(steps, axes, last, "strides")
    apart = _over_space(1 if dilations is None else dilations, axes, last, "dilations")
    x = _channels_first(x, axes, last)
    w = _node(filters).permute(axes + 1, axes, *range(axes))
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], apart, strict=True)]
    x, ends = padding_of(x, reach, steps, padding, 0.0)
    out = _CONVOLUTIONS[axes](x, w, None, steps, ends, apart, groups)
    return _back(out, axes, last)


@function
def conv1d(
    value: Any, filters: Any, stride: Any = 1, padding: str = "VALID",
    use_cudnn_on_gpu: None = None, data_format: str | None = None,
    dilations: Any = None,
) -> Any:  # fmt: skip
    """A convolution over one axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 3])
    ...     weft.static.nn.conv1d(x, np.zeros((3, 3, 4), "f"), 2, "SAME").get_shape()
    (None, 4, 4)
    """
    return convolved(value, filters, stride, padding, data_format, dilations, 1)


@function
def conv2d(
    input: Any, filter: Any = None, strides: Any = 1, padding: str = "VALID",
    use_cudnn_on_gpu: bool = True, data_format: str = "NHWC", dilations: Any = None,
    filters: Any = None,
) -> Any:  # fmt: skip
    """A convolution with TensorFlow's layouts: images NHWC, filters HWIO.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     w = weft.static.Variable(np.zeros((3, 3, 3, 4), "f"))
    ...     weft.static.nn.conv2d(x, w, [1, 2, 2, 1], "SAME").get_shape()
    (None, 4, 4, 4)
    """
    filter = filters if filter is None else filter
    return convolved(input, filter, strides, padding, data_format, dilations, 2)


@function
def conv3d(
    input: Any, filter: Any, strides: Any, padding: str, data_format: str = "NDHWC",
    dilations: Any = None,
) -> Any:  # fmt: skip
    """A convolution over three axes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.placeholder(weft.float32, [None, 4, 4, 4, 1])
    ...     w = np.zeros((2, 2, 2, 1, 5), "f")
    ...     weft.static.nn.conv3d(x, w, [1, 1, 1, 1, 1], "VALID").get_shape()
    (None, 3, 3, 3, 5)
    """
    return convolved(input, filter, strides, padding, data_format, dilations, 3)


@function
def atrous_conv2d(value: Any, filters: Any, rate: int, padding: str) -> Any:
    """A convolution whose window has holes: every ``rate``-th element.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 1])
    ...     w = np.zeros((3, 3, 1, 2), "f")
    ...     weft.static.nn.atrous_conv2d(x, w, 2, "VALID").get_shape()
    (None, 4, 4, 2)
    """
    return convolved(value, filters, 1, padding, None, rate, 2)


@function
def depthwise_conv2d(
    input: Any, filter: Any, strides: Any, padding: str, rate: Any = None,
    data_format: str | None = None,
) -> Any:  # fmt: skip
    """A convolution of each channel by itself; filters are (height, width, in, each).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     w = np.zeros((3, 3, 3, 2), "f")
    ...     weft.static.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME").get_shape()
    (None, 8, 8, 6)
    """
    w = _node(filter)
    height, width, channels, each = w.shape
    w = w.reshape(height, width, 1, channels * each)
    return convolved(input, w, strides, padding, data_format, rate, 2, channels)


@function
def separable_conv2d(
    input: Any, depthwise_filter: Any, pointwise_filter: Any, strides: Any,
    padding: str, rate: Any = None, data_format: str | None = None,
) -> Any:  # fmt: skip
    """A convolution of each channel by itself, then a mixing of channels.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     w, p = np.zeros((3, 3, 3, 1), "f"), np.zeros((1, 1, 3, 7), "f")
    ...     y = weft.static.nn.separable_conv2d(x, w, p, [1, 1, 1, 1], "SAME")
    ...     y.get_shape()
    (None, 8, 8, 7)
    """
    deep = depthwise_conv2d(input, depthwise_filter, strides, padding, rate,
                            data_format)  # fmt: skip
    return convolved(deep, pointwise_filter, 1, "VALID", data_format, 1, 2)


def transposed(
    x: Any, filters: Any, sizes: Any, steps: Any, padding: str, layout: str | None,
    axes: int,
) -> Any:  # fmt: skip
    """The transpose of a convolution that would take ``sizes`` to the value's."""
    last = channels_last(layout, axes)
    steps = _over_space(steps, axes, last, "strides")
    x = _channels_first(x, axes, last)
    w = _node(filters).permute(axes + 1, axes, *range(axes))
    out = _TRANSPOSED[axes](x, w, stride=steps)
    for axis, size in enumerate(sizes):
        full, have = out.shape[axis + 2], x.shape[axis + 2]
        lead = 0
        if padding.upper() == "SAME":
            lead = larger((have - 1) * steps[axis] + w.shape[axis + 2] - size, 0) // 2
        short = larger(size + lead - full, 0)
        if not isinstance(short, int) or short:
            out = _widened(out, axis + 2, [0, short], 0.0)
        out = out.narrow(axis + 2, lead, size)
    return _back(out, axes, last)


def _given_sizes(shape: Any, axes: int, last: bool) -> tuple[Any, ...]:
    sizes = sizes_of(shape)
    if len(sizes) == axes:
        return sizes
    return sizes[1:-1] if last else sizes[2:]


def _transposed_function(name: str, axes: int) -> Any:
    def call(
        value: Any, filter: Any, output_shape: Any, strides: Any,
        padding: str = "SAME", data_format: str | None = None,
    ) -> Any:  # fmt: skip
        sizes = _given_sizes(output_shape, axes, channels_last(data_format, axes))
        return transposed(value, filter, sizes, strides, padding, data_format, axes)

    call.__name__ = call.__qualname__ = name
    window = ", ".join(["3"] * axes)
    call.__doc__ = f"""The transpose of a convolution over {axes} axes.

    Filters are (*window, out, in); ``output_shape`` is the size of the result.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant(np.ones((1, {window}, 2), "f"))
    ...     w = np.zeros(({window}, 5, 2), "f")
    ...     shape = [1, {", ".join(["6"] * axes)}, 5]
    ...     y = weft.static.nn.{name}(x, w, shape, 2, "SAME")
    ...     session.run(y).shape == tuple(shape)
    True
    """
    return function(call)


conv1d_transpose = _transposed_function("conv1d_transpose", 1)
conv2d_transpose = _transposed_function("conv2d_transpose", 2)
conv3d_transpose = _transposed_function("conv3d_transpose", 3)


def pooled(
    x: Any, window: Any, steps: Any, padding: str, layout: str | None, axes: int,
    largest: bool,
) -> Any:  # fmt: skip
    """The largest element or the mean of each window."""
    last = channels_last(layout, axes)
    window = _over_space(window, axes, last, "ksize")
    steps = _over_space(steps, axes, last, "strides")
    x = _channels_first(x, axes, last)
    if largest:
        x = padded(x, window, steps, padding, -float("inf"))
        return _back(_MAXIMA[axes](x, window, steps), axes, last)
    out = _MEANS[axes](padded(x, window, steps, padding, 0.0), window, steps)
    if padding.upper() == "SAME":  # a mean of the elements inside the image
        inside = weft.ones(1, 1, *x.shape[2:], dtype=x.dtype)
        inside = padded(inside, window, steps, padding, 0.0)
        out = out / _MEANS[axes](inside, window, steps)
    return _back(out, axes, last)


def _pool(name: str, axes: int, largest: bool) -> Any:
    def call(
        value: Any = None, ksize: Any = None, strides: Any = None,
        padding: str = "VALID", data_format: str | None = None, input: Any = None,
    ) -> Any:  # fmt: skip
        x = input if value is None else value
        return pooled(x, ksize, strides, padding, data_format, axes, largest)

    what = "The largest element of each window" if largest else (
        "The mean of each window (of its elements inside the image)"
    )  # fmt: skip
    call.__name__ = call.__qualname__ = name
    size = ", ".join(["2"] * axes)
    call.__doc__ = f"""{what}, over {axes} axes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = np.arange({2**axes}.0).reshape(1, {size}, 1)
    ...     float(session.run(weft.static.nn.{name}(x, 2, 2, "VALID")).item())
    {float(2**axes - 1) if largest else (2**axes - 1) / 2}
    """
    return function(call)


max_pool1d, avg_pool1d = _pool("max_pool1d", 1, True), _pool("avg_pool1d", 1, False)
max_pool, avg_pool = _pool("max_pool", 2, True), _pool("avg_pool", 2, False)
max_pool2d, avg_pool2d = max_pool, avg_pool
max_pool3d, avg_pool3d = _pool("max_pool3d", 3, True), _pool("avg_pool3d", 3, False)


def _axes_of(input: Any) -> int:
    axes = _node(input).ndim - 2
    if axes not in _CONVOLUTIONS:
        raise ShapeError(
            f"expected a value with one to three axes of space, got {axes}"
        )
    return axes


@function
def convolution(
    input: Any, filter: Any = None, padding: str = "VALID", strides: Any = None,
    dilation_rate: Any = None, data_format: str | None = None, filters: Any = None,
) -> Any:  # fmt: skip
    """A convolution over as many axes as the value has.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     w = np.zeros((3, 3, 3, 4), "f")
    ...     weft.static.nn.convolution(x, w, "VALID").get_shape()
    (None, 6, 6, 4)
    """
    weights = filters if filter is None else filter
    steps = 1 if strides is None else strides
    return convolved(
        input, weights, steps, padding, data_format, dilation_rate, _axes_of(input)
    )


@function
def pool(
    input: Any, window_shape: Any, pooling_type: str, padding: str,
    dilation_rate: Any = None, strides: Any = None, data_format: str | None = None,
) -> Any:  # fmt: skip
    """The largest element (``"MAX"``) or the mean (``"AVG"``) of each window.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     weft.static.nn.pool(x, [2, 2], "MAX", "VALID", strides=[2, 2]).get_shape()
    (None, 4, 4, 3)
    """
    if pooling_type not in ("MAX", "AVG") or dilation_rate not in (None, 1):
        raise ArgumentError(
            f"pool: expected 'MAX' or 'AVG' without dilation, got {pooling_type!r} and "
            f"{dilation_rate!r}"
        )
    steps = 1 if strides is None else strides
    return pooled(
        input, window_shape, steps, padding, data_format, _axes_of(input),
        pooling_type == "MAX",
    )  # fmt: skip


@function
def max_pool_with_argmax(
    input: Any, ksize: Any, strides: Any, padding: str, Targmax: Any = weft.int64,
    include_batch_in_index: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The largest element of each window, and where it is: (y * width + x) * channels
    + channel.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = np.array([1.0, 5.0, 2.0, 3.0], "f").reshape(1, 2, 2, 1)
    ...     y, index = weft.static.nn.max_pool_with_argmax(x, 2, 2, "VALID")
    ...     [int(v.item()) for v in session.run([y, index])]
    [5, 1]
    """
    window = _over_space(ksize, 2, True, "ksize")
    steps = _over_space(strides, 2, True, "strides")
    x = _channels_first(input, 2, True)
    batch, channels, height, width = x.shape
    wide, ends = padding_of(x, window, steps, padding, -float("inf"))
    (top, _), (left, _) = ends
    wide = F.pad(
        wide, [n for pair in reversed(ends) for n in pair], value=-float("inf")
    )
    out, index = F.max_pool2d(wide, window, steps, return_indices=True)
    y, z = index // wide.shape[3] - top, index % wide.shape[3] - left
    place = (y * width + z) * channels + weft.arange(channels).reshape(1, -1, 1, 1)
    if include_batch_in_index:
        size = height * width * channels
        place = place + weft.arange(batch).reshape(-1, 1, 1, 1) * size
    return _back(out, 2, True), _back(place, 2, True).to(as_dtype(Targmax))
