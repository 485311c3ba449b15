"""Recorded numbers of reference implementations (tests/data/golden): inputs and outputs, each file with its source."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from softmaxdyn.tokens import Tokens

DATA = Path(__file__).parent / "data" / "golden"


def cases(*families, only=lambda case: True):
    """Every case of the families as parameters of a test, named family/case."""
    found = [
        pytest.param(case, id=f"{family}/{case['name']}")
        for family in families
        for case in json.loads((DATA / f"{family}.json").read_text("utf-8"))["cases"]
        if only(case)
    ]
    assert found
    return pytest.mark.parametrize("case", found)


def array(numbers):
    """Numbers of a JSON file as float64: "nan" and "inf" are spelled out, null (no value) becomes NaN."""
    rows = numbers if numbers and isinstance(numbers[0], list) else [numbers]
    table = np.array([[np.nan if x is None else float(x) for x in row] for row in rows])
    return table if rows is numbers else table[0]


def padded(table, shape=(8, 6)):
    """The matrix with zeros below and on the right: one shape for all cases, so that a formula compiles once."""
    return np.pad(table, [(0, size - old) for size, old in zip(shape, table.shape, strict=True)])


def matrix(case, name):
    """A matrix of the outputs, or else of the inputs, padded; 0 in the masked cells, whatever was there."""
    numbers = case["outputs"].get(name) or case["inputs"][name]
    return np.where(valid(case), padded(array(numbers)), 0.0)


def valid(case):
    """The mask [B, T] of the valid tokens, padded."""
    return padded(array(case["inputs"]["response_mask"])) > 0.0


def shape(case):
    """The shape of the recorded matrices."""
    return array(case["inputs"]["response_mask"]).shape


def tokens_of(log_prob, old_log_prob, advantage, mask):
    """Tokens of matrices [B, T], row after row: one episode a row, weight 1/N, 0 in the masked cells."""
    rows, columns = np.indices(mask.shape).reshape(2, -1).astype(np.int32)
    zeros = jnp.zeros(mask.size)
    return Tokens(
        state=jnp.zeros_like(rows),
        action=jnp.zeros_like(rows),
        weight=jnp.asarray(mask.ravel() / max(mask.sum(), 1.0)),
        advantage=jnp.asarray(advantage).ravel(),
        log_prob=jnp.asarray(log_prob).ravel(),
        old_log_prob=jnp.asarray(old_log_prob).ravel(),
        entropy=zeros,
        reward=zeros,
        episode=jnp.asarray(rows),
        group=jnp.asarray(rows),
        position=jnp.asarray(columns),
    )


def recorded(case):
    """The tokens of a recorded case."""
    return tokens_of(*(matrix(case, name) for name in ("log_prob", "old_log_prob", "advantages")), valid(case))
