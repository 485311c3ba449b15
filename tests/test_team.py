"""Which process computes which block."""

from hypothesis import given
from hypothesis import strategies as st

from softmaxdyn.sweeps.team import Team


@given(st.integers(1, 7), st.integers(0, 40))
def test_every_block_belongs_to_one_process(size, place):
    assert [Team(rank, size).owns(place) for rank in range(size)].count(True) == 1
