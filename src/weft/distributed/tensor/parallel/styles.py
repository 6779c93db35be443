"""Styles: how a layer's parameters, inputs and outputs are shared out."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor.dtensor import DTensor
from weft.distributed.tensor.modules import share_out
from weft.distributed.tensor.placements import Partial, Replicate, Shard
from weft.errors import ArgumentError
from weft.ops.require import require_index


class ParallelStyle:
    """The base of styles."""

    src_data_rank: int | None = 0

    def apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        """Share out a module's parameters, and change what goes in and comes out."""
        raise NotImplementedError(f"{type(self).__name__} says not how it is applied")


def entered(x: Any, mesh: DeviceMesh, given: Any, wanted: Any) -> Any:
    """An input as a DTensor of the wanted placement; a plain one has the given one."""
    if not isinstance(x, Tensor) or given is None:
        return x
    if not isinstance(x, DTensor):
        x = DTensor.from_local(x, mesh, (given,))
    return x if wanted is None else x.redistribute(placements=(wanted,))


def left(x: Any, wanted: Any, local: bool) -> Any:
    """An output with the wanted placement; the part of it if that is asked for."""
    if not isinstance(x, DTensor) or wanted is None:
        return x
    if x.placements != (wanted,):
        x = x.redistribute(placements=(wanted,))
    return x.to_local() if local else x


class _Layer(ParallelStyle):
    """A style of a layer with one input and one output."""

    name = ""
    wanted: Any = None  # the placement of the input for the layer's own work

    def __init__(
        self, input_layouts: Any, output_layouts: Any, use_local_output: bool
    ) -> None:
        self.input_layouts, self.output_layouts = input_layouts, output_layouts
        self.use_local_output = use_local_output

    def placements(self, module: Any) -> dict[str, Any]:
        raise NotImplementedError

    def inside(self, module: Any) -> Any:
        """The placement that the layer needs its input in."""
        return self.wanted

    def apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        share_out(module, device_mesh, self.placements(module))
        wanted = self.inside(module)

        def before(mod: Any, args: tuple[Any, ...]) -> Any:
            first = entered(args[0], device_mesh, self.input_layouts, wanted)
            return (first, *args[1:])

        def after(mod: Any, args: Any, out: Any) -> Any:
            return left(out, self.output_layouts, self.use_local_output)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module

    def _refused(self, module: Any) -> ArgumentError:
        return ArgumentError(
            f"{self.name}: expected nn.Linear or nn.Embedding, got "
            f"{type(module).__name__}"
        )


class ColwiseParallel(_Layer):
    """The columns of a layer's result, each process some: its weight is ``Shard(0)``.

    An embedding's weight is ``Shard(1)``.
    """

    name, wanted = "ColwiseParallel", Replicate()

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        output_layouts: Any = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output
        )

    def placements(self, module: Any) -> dict[str, Any]:
        if isinstance(module, nn.Linear):
            return {"weight": [Shard(0)], "bias": [Shard(0)]}
        if isinstance(module, nn.Embedding):
            return {"weight": [Shard(1)]}
        raise self._refused(module)


class RowwiseParallel(_Layer):
    """A layer whose input's columns are in parts: its weight is ``Shard(1)``.

    The results are terms of a sum. An embedding's weight is ``Shard(0)``: each process
    has some of the rows, and zeros for others.
    """

    name = "RowwiseParallel"

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        output_layouts: Any = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output
        )

    def placements(self, module: Any) -> dict[str, Any]:
        if isinstance(module, nn.Linear):
            return {"weight": [Shard(1)]}
        if isinstance(module, nn.Embedding):
            return {"weight": [Shard(0)]}
        raise self._refused(module)

    def inside(self, module: Any) -> Any:
        return Replicate() if isinstance(module, nn.Embedding) else Shard(-1)

    def apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        found = super().apply(module, device_mesh)
        if isinstance(module, nn.Embedding):
            if module.max_norm is not None or module.padding_idx is not None:
                raise ArgumentError(
                    "RowwiseParallel: expected an embedding without max_norm and "
                    "padding_idx"
                )
            vars(module)["forward"] = functools.partial(_rows_of_all, module)
        return found


def _rows_of_all(module: Any, index: Any) -> DTensor:
    """``forward`` of an embedding of which every process has some of the rows."""
    weight = module.weight
    mesh = weight.device_mesh
    rows, ids = weight.to_local(), index.to_local()
    ids = require_index("embedding", ids, weight.shape[0], 0, wrap=False)
    first = mesh.get_local_rank() * -(-weight.shape[0] // mesh.size())
    if rows.shape[0]:
        here = (ids >= first) & (ids < first + rows.shape[0])
        found = rows[weft.where(here, ids - first, 0)] * here[..., None]
    else:
        found = rows.sum(0).expand(*ids.shape, -1)  # zeros, on the tape
    return DTensor.from_local(found, mesh, (Partial(),))


class SequenceParallel(ParallelStyle):
    """A layer such as a norm, on pieces of the sequence; its parameters are copies."""

    def __init__(
        self, *, sequence_dim: int = 1, use_local_output: bool = False
    ) -> None:
        self.sequence = Shard(sequence_dim)
        self.use_local_output = use_local_output

    def apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        share_out(module, device_mesh, {})

        def before(mod: Any, args: tuple[Any, ...]) -> Any:
            first = entered(args[0], device_mesh, self.sequence, self.sequence)
            return (first, *args[1:])

        def after(mod: Any, args: Any, out: Any) -> Any:
            return left(out, self.sequence, self.use_local_output)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
        return module


def _several(layouts: Any) -> tuple[Any, ...] | None:
    if layouts is None:
        return None
    return tuple(layouts) if isinstance(layouts, (list, tuple)) else (layouts,)


class PrepareModuleInput(ParallelStyle):
    """Change the placements of a module's inputs before it runs."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: Mapping[str, Any] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Any] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.given, self.wanted = (
            _several(input_layouts), _several(desired_input_layouts)
        )  # fmt: skip
        self.named = dict(input_kwarg_layouts or {})
        self.named_wanted = dict(desired_input_kwarg_layouts or {})
        self.use_local_output = use_local_output
        if self.given is not None and (
            self.wanted is None or len(self.wanted) != len(self.given)
        ):
            raise ArgumentError(
                "PrepareModuleInput: input_layouts and desired_input_layouts should "
                f"have same length, got {self.given} and {self.wanted}"
            )
        if self.named.keys() != self.named_wanted.keys():
            raise ArgumentError(
                "PrepareModuleInput: expected the same names in input_kwarg_layouts "
                "and desired_input_kwarg_layouts"
            )

    def apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def prepared(x: Any, given: Any, wanted: Any) -> Any:
            x = entered(x, device_mesh, given, wanted)
            return left(x, wanted, self.use_local_output)

        def before(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            found: Sequence[Any] = args
            if self.given is not None and self.wanted is not None:
                if len(args) != len(self.given):
                    raise ArgumentError(
                        "PrepareModuleInput: module inputs and input_layouts should "
                        f"have same length, got {len(args)} and {len(self.given)}"
                    )
                triples = zip(args, self.given, self.wanted, strict=True)
                found = [prepared(*one) for one in triples]
            named = {
                k: prepared(v, self.named[k], self.named_wanted[k])
                if k in self.named
                else v
                for k, v in kwargs.items()
            }
            return tuple(found), named

        module.register_forward_pre_hook(before, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Change the placements of a module's outputs after it has run."""

    def __init__(
        self,
        *,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.given = _several(output_layouts) or ()
        self.wanted = _several(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        if len(self.given) != len(self.wanted):
            raise ArgumentError(
                "PrepareModuleOutput: output_layouts and desired_output_layouts should "
                f"have same length, got {self.given} and {self.wanted}"
            )

    def apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def after(mod: Any, args: Any, out: Any) -> Any:
            outs = out if isinstance(out, tuple) else (out,)
            if len(outs) != len(self.given):
                raise ArgumentError(
                    "PrepareModuleOutput: module outputs and output_layouts should "
                    f"have same length, got {len(outs)} and {len(self.given)}"
                )
            triples = zip(outs, self.given, self.wanted, strict=True)
            found = tuple(
                left(entered(x, device_mesh, given, wanted), wanted,
                     self.use_local_output)
                for x, given, wanted in triples
            )  # fmt: skip
            return found if isinstance(out, tuple) else found[0]

        module.register_forward_hook(after)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """``PrepareModuleInput`` and ``PrepareModuleOutput`` together."""

    def __init__(
        self,
        *,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_input: bool = False,
        use_local_output: bool = True,
        **inputs: Any,
    ) -> None:
        self.before = PrepareModuleInput(**inputs, use_local_output=use_local_input)
        self.after = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.before.apply(module, device_mesh)
        return self.after.apply(module, device_mesh)
