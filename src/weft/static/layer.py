"""The base of layers and recurrent cells: variables in a scope, made when called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.static.building import building
from weft.static.collections import GraphKeys, add_to_collection
from weft.static.graph import name_scope
from weft.static.scopes import VariableScope, get_variable, variable_scope
from weft.static.variable import Variable


class Layer:
    """A function with variables, which its first call makes and later ones share.

    A layer of your own has ``build(input_shape)``, which calls ``add_variable``, and
    ``call(inputs)``.

    >>> class Scale(weft.static.layers.Layer):
    ...     def build(self, input_shape):
    ...         self.rate = self.add_variable("rate", [input_shape[-1]])
    ...     def call(self, inputs):
    ...         return inputs * self.rate
    >>> with weft.static.Graph().as_default():
    ...     layer = Scale()
    ...     y = layer(weft.static.constant([[1.0, 2.0]]))
    ...     layer.variables
    [<read 'scale/rate' float32[2]>]
    """

    renamed: dict[str, str] = {}  # variables' names, where they are not as usual

    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: Any = None,
        activity_regularizer: Any = None, _reuse: Any = None, _scope: Any = None,
    ) -> None:  # fmt: skip
        self.trainable, self.dtype = trainable, dtype
        self.activity_regularizer = activity_regularizer
        self.built = False
        self.variables: list[Variable] = []
        self.updates: list[Any] = []
        self.losses: list[Any] = []
        self._name, self._reuse = name, _reuse
        self._scope: Any = _scope

    @property
    def name(self) -> str:
        """The scope's own name, once there is one."""
        if isinstance(self._scope, VariableScope):
            return self._scope.name.rpartition("/")[2]
        return self._name or self.base_name()

    @property
    def scope_name(self) -> str:
        """The full name of the scope of the variables."""
        return self._scope.name

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that optimizers change."""
        return [v for v in self.variables if v.trainable]

    weights = property(lambda self: self.variables)
    trainable_weights = trainable_variables

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that optimizers leave alone."""
        return [v for v in self.variables if not v.trainable]

    @classmethod
    def base_name(cls) -> str:
        """The class's name in small letters: ``BasicLSTMCell`` is basic_lstm_cell."""
        words = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", cls.__name__)
        return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower().lstrip("_")

    def build(self, input_shape: Any) -> None:
        """Make the variables."""

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The layer's result."""
        raise NotImplementedError(f"{type(self).__name__} has no call(inputs)")

    def add_variable(
        self, name: str, shape: Any, dtype: Any = None, initializer: Any = None,
        regularizer: Any = None, trainable: bool = True, constraint: Any = None,
    ) -> Variable:  # fmt: skip
        """A variable of the layer, in its scope."""
        made = get_variable(
            self.renamed.get(name, name), shape, dtype or self.dtype, initializer,
            regularizer, trainable and self.trainable, constraint=constraint,
        )  # fmt: skip
        self.variables.append(made)
        return made

    add_weight = add_variable

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Put an operation into the collection of updates."""
        self.updates.append(updates)
        add_to_collection(GraphKeys.UPDATE_OPS, updates)

    def add_loss(self, loss: Any, inputs: Any = None) -> None:
        """Put a loss into the collection of regularization losses."""
        self.losses.append(loss)
        add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    @contextmanager
    def _entered(self, scope: Any) -> Iterator[None]:
        """The layer's scope: found by the first call, entered again by later ones."""
        if isinstance(self._scope, VariableScope):
            reuse = True if self.built else self._reuse
            lead = self._scope.original_name_scope or None
            with variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False):
                if lead is None:
                    yield
                    return
                with name_scope(lead):
                    yield
            return
        chosen = scope or self._scope or self._name
        with variable_scope(
            chosen, default_name=self.base_name(), reuse=self._reuse
        ) as self._scope:
            yield

    def __call__(
        self, inputs: Any, *args: Any, scope: Any = None, **kwargs: Any
    ) -> Any:
        with self._entered(scope), building():
            if not self.built:
                self.build(_shape(inputs))
                self.built = True
            out = self.call(inputs, *args, **kwargs)
            if self.activity_regularizer is not None:
                self.add_loss(self.activity_regularizer(out))
        return out

    apply = __call__


def _shape(inputs: Any) -> Any:
    if isinstance(inputs, (list, tuple)):
        return [_shape(one) for one in inputs]
    return tuple(inputs.shape)
