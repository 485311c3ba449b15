"""All claims: 62, in functions that a reader can change, and one of each family tried again from its seed."""

import inspect

import jax
import pytest

from softmaxdyn.ledger import Size, shelf
from softmaxdyn.ledger.record import as_record

CLAIMS = shelf.load_claims()


def test_there_are_62_claims():
    assert list(CLAIMS) == [f"C{number}" for number in range(1, 63)]


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_one_function_that_says_how_it_is_tried_and_where_it_comes_from(claim):
    assert len(inspect.getsource(claim.function).splitlines()) <= 68, "60 lines and its decorator"
    assert len(claim.experiment) > 100
    assert claim.statement.endswith(".")
    assert claim.source
    assert claim.threshold


@pytest.mark.parametrize("name", ["C16", "C53"])
def test_a_finding_is_remade_to_the_bit(name):
    with jax.enable_x64(True):
        first, second = (as_record(CLAIMS[name], CLAIMS[name].function(Size(quick=True)), {}) for _ in range(2))
    assert first == second
    assert first["verdict"] != "undecided at this size"
