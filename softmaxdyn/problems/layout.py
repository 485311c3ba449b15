"""The rows of a token tree: which prefix is where."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from softmaxdyn.errors import InputError

LARGEST = 2**27
"""Entries that a table of a tree may have: 1 GiB in float64."""


DEEPEST = 100
"""Levels that a tree may have; only one without branches comes near."""


class Layout(NamedTuple):
    """The rows of a token tree: level k holds P·Bᵏ prefixes, prompt first; token a leads from row s to P + B·s + a.

    Responses are listed prompt by prompt, within one in the order of the (prefix, token) that finishes them.
    """

    prompts: int
    vocabulary: int
    depth: int
    end: bool

    @property
    def branching(self) -> int:
        """B: the tokens that do not end the response."""
        return self.vocabulary - self.end

    @property
    def edges(self) -> list[tuple[int, int]]:
        """(first row, row after the last) of each level."""
        return list(pairwise(accumulate((self.prompts * self.branching**k for k in range(self.depth)), initial=0)))

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return self.edges[-1][1], self.vocabulary

    @property
    def response_count(self) -> int:
        """E: the responses to one prompt."""
        return sum(self.branching**k for k in range(self.depth + 1)) if self.end else self.branching**self.depth

    def levels(self, table: Any) -> list[Any]:
        """A table [S, …] level by level."""
        return [table[low:high] for low, high in self.edges]

    def final(self, table: Float[Array, "S A"], fill: float = 0.0) -> Float[Array, "S A"]:
        """The table with `fill` where the token does not finish a response."""
        *inner, last = self.levels(table)
        ends = jnp.arange(self.vocabulary) >= self.branching
        return jnp.concatenate([*(jnp.where(ends, rows, fill) for rows in inner), last])

    def finished(self, table: Any) -> Any:
        """A table [S, A] as an array [P, E]: one number a response."""
        *inner, last = self.levels(table)
        columns = [*(rows[:, self.branching :] for rows in inner), last]
        return jnp.concatenate([block.reshape(self.prompts, -1) for block in columns], 1)

    def summed(self, table: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """The sum of the table along the path that leads to and includes (s, a)."""
        before, totals = jnp.zeros(self.prompts, table.dtype), []
        for rows in self.levels(table):
            totals.append(before[:, None] + rows)
            before = totals[-1][:, : self.branching].reshape(-1)
        return jnp.concatenate(totals)

    def paths(self) -> tuple[Int[Array, "N T"], Int[Array, "N T"], Bool[Array, "N T"]]:
        """(row, token, whether there is one) of each token of the P·E responses."""
        parts = [self._paths_of(level) for level in range(self.depth) if self.end or level == self.depth - 1]
        rows, tokens, taken = (
            jnp.concatenate(arrays, 1).reshape(-1, self.depth) for arrays in zip(*parts, strict=True)
        )
        return rows, tokens, taken

    def _paths_of(self, level: int) -> tuple[Array, Array, Array]:
        low, high = self.edges[level]
        first = 0 if level == self.depth - 1 else self.branching
        size = high - low, self.vocabulary - first, self.depth
        node, token, position = (jax.lax.broadcasted_iota(jnp.int32, size, axis) for axis in range(3))
        power = np.array([self.branching ** max(level - t, 0) for t in range(self.depth)], np.int32)
        lower = np.array([self.branching ** max(level - 1 - t, 0) for t in range(self.depth)], np.int32)
        offset = np.array([self.edges[min(t, level)][0] for t in range(self.depth)], np.int32)
        before = jnp.where(position < level, node // lower % self.branching, 0)
        tokens = jnp.where(position == level, token + first, before)
        paths = offset + node // power, tokens, position <= level
        return tuple(x.reshape(self.prompts, -1, self.depth) for x in paths)  # type: ignore[return-value]

    def responses(self) -> Iterator[tuple[int, ...]]:
        """The responses to one prompt, in the order of the list; the end token is left out."""
        for level in range(self.depth):
            for prefix in product(range(self.branching), repeat=level):
                if level == self.depth - 1:
                    yield from ((*prefix, token) for token in range(self.branching))
                if self.end:
                    yield prefix

    def finishes(self) -> np.ndarray:
        """Whether the token finishes a response, [S, A]."""
        table = np.zeros(self.shape, bool)
        table[:, self.branching :] = True
        table[self.edges[-1][0] :] = True
        return table

    def name(self, row: int, token: int) -> str:
        """Which token of which prefix an entry belongs to, in words."""
        tokens: list[int] = []
        while row >= self.prompts:
            row, last = divmod(row - self.prompts, self.branching)
            tokens.insert(0, last)
        return f"token {token} after {tuple(tokens)}" + (f" of prompt {row}" if self.prompts > 1 else "")


def check_size(prompts: int, vocabulary: int, depth: int, end: bool) -> None:
    """Raises InputError for more than `DEEPEST` levels and for tables of more than `LARGEST` entries."""
    if depth > DEEPEST:
        raise InputError(f"depth is {depth}; wanted at most {DEEPEST}: each level of the tree is compiled on its own")
    count = prompts * sum((vocabulary - end) ** level for level in range(depth))
    tenths = -(-10 * count * vocabulary // LARGEST)
    if tenths > 10:
        size = f"{tenths / 10:,}" if tenths < 10**9 else _power(tenths // 10)
        raise InputError(
            f"vocabulary {vocabulary}, depth {depth}, prompts {prompts} make"
            f" {f'{count:,}' if count < 10**12 else _power(count)} prefixes, {size} GiB a table;"
            " wanted at most 1 GiB: lower one of the three"
        )


def _power(number: int) -> str:
    return f"about 1e{math.log10(number):.0f}"
