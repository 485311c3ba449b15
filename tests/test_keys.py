"""Random keys: what draws the episodes of a step shares no key with what an intervention draws."""

import jax
import numpy as np

from softmaxdyn import Algorithm, Sampled, VanillaPG
from softmaxdyn.configs import config
from softmaxdyn.interventions import Intervention
from softmaxdyn.policy import softmax
from softmaxdyn.simulation import step
from tests.worlds import BEFORE, worlds


@config
class Listener(Intervention):
    """Tells the key that it gets, by way of a callback."""

    def __call__(self, key, tokens, policy, push):
        jax.debug.callback(lambda words: HEARD.append(tuple(words.tolist())), jax.random.key_data(key))
        return push


@config
class Recorder(Sampled):
    """Tells the key with which it draws."""

    def __call__(self, key, problem, policy):
        DRAWN.append(key)
        return super().__call__(key, problem, policy)


HEARD: list = []
DRAWN: list = []


def test_no_key_of_a_step_is_used_twice_nor_are_its_children_those_of_another():
    algorithm = Algorithm(VanillaPG(0.1), Recorder(groups=2, group_size=2), (Listener(), Listener()))
    problem = worlds()["bandit"]
    step(problem, algorithm.start(BEFORE.logits), softmax(BEFORE.logits), jax.random.key(3), 3)
    jax.effects_barrier()
    draw = DRAWN[0]
    children = [jax.random.fold_in(draw, number) for number in range(64)]
    used = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in (draw, *children)}
    assert len(set(HEARD)) == len(HEARD) == 6
    assert used.isdisjoint(HEARD)
