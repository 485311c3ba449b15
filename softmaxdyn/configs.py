"""Frozen configs that are pytrees: their numbers are leaves (a new number never recompiles), the rest is static."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import jax
import numpy as np
from jax.tree_util import GetAttrKey

T = TypeVar("T")

if TYPE_CHECKING:
    Number = float | jax.Array
else:  # what `with_dtype` makes of it
    Number = float | np.ndarray | np.generic | jax.Array
"""What a number of a config may be: typed by a person, or an array or tracer of JAX."""


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field of a config that is part of its type (a name, a shape): hashable, and a new value recompiles."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def config(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and a pytree.

    JAX rebuilds a config without calling its constructor, so `__post_init__` may validate what a person typed.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    static_names = tuple(f.name for f in fields if f.metadata.get("static"))
    leaf_names = tuple(f.name for f in fields if not f.metadata.get("static"))

    def flatten_with_keys(self: T) -> tuple[list[Any], tuple[Any, ...]]:
        leaves = [(GetAttrKey(name), getattr(self, name)) for name in leaf_names]
        return leaves, tuple(getattr(self, name) for name in static_names)

    def flatten(self: T) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(self, name) for name in leaf_names], tuple(getattr(self, name) for name in static_names)

    def unflatten(statics: tuple[Any, ...], leaves: Any) -> T:
        self = object.__new__(cls)
        for name, value in zip(leaf_names + static_names, (*leaves, *statics), strict=True):
            object.__setattr__(self, name, value)
        return self

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def with_dtype(tree: T, dtype: Any) -> T:
    """The same tree with every real number in it as an array of `dtype` (integer arrays and keys stay)."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, np.floating):
            return leaf
        if isinstance(leaf, jax.Array):
            return leaf.astype(dtype)
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind != "f":
            return leaf
        return np.asarray(leaf, dtype) if isinstance(leaf, int | float | np.ndarray | np.generic) else leaf

    return jax.tree.map(convert, tree)
