"""Sampled GRPO, Clip-Cov and KL-Cov on 1000 prompts of 10 answers, 8 responses each: a step here and in torch.

In torch as training code writes it: draw, log-probabilities of the whole table, the loss of each token, autograd, SGD.
Both draw from the policy, so a first step is on-policy; float32.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import numpy as np

from softmaxdyn.configs import with_dtype
from softmaxdyn.methods import build
from softmaxdyn.policy import softmax
from softmaxdyn.problems.named import named
from softmaxdyn.simulation import step

PROMPTS, ACTIONS, RESPONSES, STEPS = 1000, 10, 8, 20
TOKENS = PROMPTS * RESPONSES * STEPS
FRACTION, COEFFICIENT, LOW, HIGH, CLIP = 2e-3, 1.0, 1.0, 5.0, 0.2
METHODS: dict[str, dict[str, float]] = {
    "grpo": {},
    "clip_cov_released": {},
    "kl_cov": {"fraction": FRACTION, "coefficient": COEFFICIENT},
}


def in_jax(method: str, generator: str = "threefry2x32") -> Callable[[], Any]:
    """STEPS steps of `method` as one program, without a record; `generator` of the random numbers."""
    setting = named("pool", 0, prompts=PROMPTS, actions=ACTIONS, correct=0.2)
    logits, problem = np.asarray(setting.logits, np.float32), with_dtype(setting.problem, np.float32)
    algorithm = build(method, groups=PROMPTS, group_size=RESPONSES, **METHODS[method]).start(logits)

    @jax.jit
    def run(z: Any, algorithm: Any, key: Any) -> Any:
        def body(t: Any, carry: Any) -> Any:
            z, algorithm = carry
            delta, algorithm, _ = step(problem, algorithm, softmax(z), jax.random.fold_in(key, t))
            return z + delta, algorithm

        return jax.lax.fori_loop(0, STEPS, body, (z, algorithm))[0]

    return lambda: run(logits, algorithm, jax.random.key(0, impl=generator)).block_until_ready()


def in_torch(method: str, threads: int) -> Callable[[], Any]:
    """STEPS steps of `method` in eager torch."""
    torch = import_module("torch")
    setting = named("pool", 0, prompts=PROMPTS, actions=ACTIONS, correct=0.2)
    rewards = torch.tensor(np.asarray(setting.problem.rewards, np.float32))
    start = torch.tensor(np.asarray(setting.logits, np.float32))
    loss_of = {"grpo": _clipped, "clip_cov_released": _clip_cov, "kl_cov": _kl_cov}[method]

    def run() -> Any:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        logits = start.clone().requires_grad_()
        optimizer = torch.optim.SGD([logits], lr=1.0)
        for _ in range(STEPS):
            with torch.no_grad():
                all_old = logits.log_softmax(1)
                actions = torch.multinomial(all_old.exp(), RESPONSES, replacement=True)
                old = all_old.gather(1, actions)
                score = rewards.gather(1, actions)
                advantage = (score - score.mean(1, keepdim=True)) / (score.std(1, keepdim=True) + 1e-6)
            optimizer.zero_grad()
            now = logits.log_softmax(1).gather(1, actions)
            loss_of(torch, advantage.flatten(), now.flatten(), old.flatten()).backward()
            optimizer.step()
        return logits

    return run


def _ppo(torch: Any, advantage: Any, now: Any, old: Any) -> tuple[Any, Any]:
    ratio = (now - old).exp()
    return -advantage * ratio, -advantage * ratio.clamp(1.0 - CLIP, 1.0 + CLIP)


def _clipped(torch: Any, advantage: Any, now: Any, old: Any) -> Any:
    return torch.maximum(*_ppo(torch, advantage, now, old)).mean()


def _covariance(advantage: Any, now: Any) -> Any:
    return (advantage - advantage.mean()) * (now - now.mean()).detach()


def _clip_cov(torch: Any, advantage: Any, now: Any, old: Any) -> Any:
    plain, clipped = _ppo(torch, advantage, now, old)
    covariance = _covariance(advantage, now)
    inside = (covariance > LOW) & (covariance < HIGH) & ~(clipped > plain)
    places = inside.nonzero().flatten()
    kept = torch.ones_like(now)
    kept[places[torch.randperm(len(places))][: max(1, int(2e-4 * len(now)))]] = 0.0
    return (torch.maximum(plain, clipped) * kept).mean()


def _kl_cov(torch: Any, advantage: Any, now: Any, old: Any) -> Any:
    loss, _ = _ppo(torch, advantage, now, old)
    top = torch.topk(_covariance(advantage, now), max(1, int(FRACTION * len(now)))).indices
    penalty = torch.zeros_like(loss)
    penalty[top] = COEFFICIENT * (now - old).abs()[top]
    return (loss + penalty).mean()
