"""Every method by name: one row, one sentence over the parts. `build("kl_cov", fraction=0.02)` gives an Algorithm.

The parts do not know whether tokens are the population (mode "exact") or a sample: `build` puts them behind the
estimator of that mode. A number of a method is a number of one of its parts, under the part's own name for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from softmaxdyn import advantages as adv
from softmaxdyn import aggregation as agg
from softmaxdyn import interventions as iv
from softmaxdyn import rewards
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.errors import InputError, check_choice
from softmaxdyn.estimators import AEPO, Exact, OffPolicy, Sampled
from softmaxdyn.policy import softmax
from softmaxdyn.updates import TRPO, NaturalPG, VanillaPG, with_step_size


class Method(NamedTuple):
    """The parts of a method, at their defaults; `around` adds tokens of another policy to the estimator's.

    `aggregation` matters where responses differ in length: the plain sum (the gradient of J) for what is defined on
    trajectories, else that of the paper, or verl's default, the mean over all tokens.
    """

    summary: str
    advantage: Any = adv.GRPO()
    interventions: tuple[Any, ...] = (iv.PPOClip(),)
    reward: Any = rewards.TrueReward()
    process: Any = None
    around: Any = None
    update: Any = VanillaPG()
    group_size: int = 8
    aggregation: Any = agg.TokenMean()

    @property
    def parts(self) -> tuple[Any, ...]:
        """Every part that holds numbers, the method's own (last) intervention first."""
        own = (*reversed(self.interventions), self.advantage, self.reward, self.process, self.around, self.update)
        return tuple(part for part in own if part is not None)

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the method and their defaults; one that two parts share is that of the first of `parts`."""
        found: dict[str, float] = {}
        for part in self.parts:
            for field in dataclasses.fields(part):
                if field.name not in _STATE and isinstance(field.default, float):
                    found.setdefault(field.name, getattr(part, field.name))
        return found

    def replace_numbers(self, numbers: dict[str, Any]) -> Method:
        """The method with other numbers. Raises InputError for one that it does not have, or that the part refuses."""
        left = dict(numbers)

        def changed(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(changed(each) for each in reversed(part))[::-1]
            if part is None:
                return None
            own = {f.name: left.pop(f.name) for f in dataclasses.fields(part) if f.name in left and f.name in known}
            return dataclasses.replace(part, **own) if own else part

        known = self.numbers
        for name in numbers:
            if not known:
                raise InputError(f"this method has no numbers of its own; got {name!r}")
            check_choice("number of this method", name, known)
        ordered = ("interventions", "advantage", "reward", "process", "around", "update")
        return self._replace(**{name: changed(getattr(self, name)) for name in ordered})


_STATE = ("step_size", "count", "error_sum")  # numbers that a part moves itself, or that `build` sets
_CLIP = iv.PPOClip()
_SUM = agg.SequenceMeanTokenSum()
_MEAN = agg.SequenceMeanTokenMean()

METHODS: dict[str, Method] = {
    # reward-only: one expected on-policy direction (T16)
    "reinforce": Method("score R, no baseline", adv.REINFORCE(), (), aggregation=_SUM),
    "reinforce_baseline": Method("score R − b, one number b", adv.Baseline(), (), aggregation=_SUM),
    "rloo": Method("leave-one-out baseline", adv.RLOO(), (), aggregation=_SUM),
    "grpo": Method("group mean and standard deviation, PPO clip", aggregation=_MEAN),
    "dr_grpo": Method("group mean only, PPO clip", adv.DrGRPO(), aggregation=agg.SequenceMeanTokenSumNorm()),
    "remax": Method("baseline: the reward of the greedy action", adv.ReMax(), (), aggregation=_SUM),
    "reinforce_pp": Method("rewards whitened over the batch, PPO clip", adv.ReinforcePP()),
    "reinforce_pp_baseline": Method("group mean, whitened over the batch, PPO clip", adv.ReinforcePPBaseline()),
    "gpg": Method("group mean, scaled up for groups without signal", adv.GPG(), (), aggregation=_SUM),
    "opo": Method("baseline weighted by length", adv.OPO(), (), aggregation=_SUM),
    "optimal_baseline": Method("the exact baseline of least variance", adv.OptimalBaseline(), (), aggregation=_SUM),
    "qae": Method("baseline: a quantile of the group's rewards", adv.QAE(), (), aggregation=_SUM),
    "pass_k": Method("only the best response of a group, as in pass@k training", adv.PassK(), (), aggregation=_SUM),
    "psr": Method("only correct samples, score +1", adv.PSR(), (), aggregation=_SUM),
    "nsr": Method("only wrong samples, score −1", adv.NSR(), (), aggregation=_SUM),
    "w_reinforce": Method("correct samples λ, wrong ones −1", adv.WReinforce(), (), aggregation=_SUM),
    "positive_reweighting": Method("positive advantages × λ", interventions=(_CLIP, iv.PositiveReweighting())),
    "entropy_aware_advantage": Method("A + min(α H, |A|/κ)", interventions=(_CLIP, iv.EntropyAwareAdvantage())),
    "fork_tokens": Method("only the states of the highest entropy", interventions=(_CLIP, iv.ForkTokens())),
    "dynamic_sampling": Method("groups without signal dropped", interventions=(_CLIP, iv.DynamicSampling())),
    "dynamic_resampling": Method("the same, the rest scaled up", interventions=(_CLIP, iv.DynamicResampling())),
    "entrocraft": Method("one sign of advantages dropped outside a band", interventions=(_CLIP, iv.Entrocraft())),
    "entropic": Method("signs reweighted by a PI controller", interventions=(_CLIP, iv.EntroPIC())),
    "entropic_released": Method(
        "confident tokens moved by a PI controller", interventions=(_CLIP, iv.EntroPICReleased())
    ),
    "brorl": Method("GRPO with 512 responses a prompt", group_size=512),
    "random_tokens": Method("control: randomly chosen tokens dropped", interventions=(_CLIP, iv.RandomTokens())),
    # off-policy only: plain on the first inner step
    "ppo": Method("exact critic, PPO clip", adv.ValueBaseline()),
    "clip_higher": Method("GRPO with the upper clip at 0.28", interventions=(iv.ClipHigher(),)),
    "dual_clip": Method("PPO clip, and none of A < 0 beyond r = c", interventions=(_CLIP, iv.DualClip())),
    "dapo": Method("Clip-Higher and dynamic sampling", interventions=(iv.ClipHigher(), iv.DynamicSampling())),
    "cispo": Method("the ratio clipped, the gradient kept", interventions=(iv.CISPO(),)),
    "gspo": Method("PPO clip of the sequence ratio", interventions=(iv.GSPO(),), aggregation=_MEAN),
    "gmpo": Method("geometric-mean ratio, clipped in logs", interventions=(iv.GMPO(),), aggregation=_MEAN),
    "sapo": Method("a soft gate of the ratio", interventions=(iv.SAPO(),), aggregation=_MEAN),
    "ce_gppo": Method("clipped tokens keep a bounded gradient", interventions=(iv.CEGPPO(),)),
    "kl_cov": Method("top covariance pulled back, |log r| as released", interventions=(iv.KLCov(),)),
    "kl_cov_true_kl": Method("top covariance pulled back, KL as printed", interventions=(iv.KLCovTrueKL(),)),
    # probability-dependent
    "clip_cov": Method("random high-covariance tokens dropped, as printed", interventions=(iv.ClipCov(),)),
    "clip_cov_released": Method("the same as released", interventions=(iv.ClipCovReleased(),)),
    "clip_cov_quantile": Method("the same, bounds as quantiles", interventions=(_CLIP, iv.ClipCovQuantile())),
    "steer": Method("damped by |Ω|, theorem form", interventions=(_CLIP, iv.Steer())),
    "steer_released": Method("damped by |Ω|, as released", interventions=(_CLIP, iv.SteerReleased())),
    "steer_released_linear": Method("the same, linear weights", interventions=(_CLIP, iv.SteerReleasedLinear())),
    "steer_exact": Method("damped by the exact first-order effect", interventions=(_CLIP, iv.SteerExact())),
    "clip_b": Method("gate by S, centred on the batch", interventions=(_CLIP, iv.ClipB())),
    "clip_b_released": Method("the same as released", interventions=(_CLIP, iv.ClipBReleased())),
    "clip_v": Method("gate by S − S̄", interventions=(_CLIP, iv.ClipV())),
    "clip_v_released": Method("the same as released", interventions=(_CLIP, iv.ClipVReleased())),
    "stare": Method("surprising tokens up or down when H is low", interventions=(_CLIP, iv.Stare())),
    "repo": Method("A − β (log π − E log π)", interventions=(_CLIP, iv.REPO())),
    "repo_rescaled": Method("A scaled by 1 ∓ ζ log π", interventions=(_CLIP, iv.REPORescaled())),
    "aepo": Method("adds correct samples of a tempered policy", adv.RLOO(), (), around=AEPO(), aggregation=_SUM),
    "luffy": Method("adds foreign samples, shaped", interventions=(iv.LUFFY(),), around=OffPolicy()),
    "prime": Method("RLOO on outcome and implicit process reward", adv.PRIME(), process=rewards.ImplicitReward()),
    # fields
    "entropy_bonus": Method("adds α ∂H/∂z", interventions=(_CLIP, iv.EntropyBonus())),
    "entropy_bonus_decaying": Method(
        "an entropy bonus that falls in a line to 0",
        interventions=(_CLIP, iv.Scheduled(iv.EntropyBonus(1e-2), iv.EntropyBonus(0.0))),
    ),
    "target_entropy": Method("entropy bonus steered to a target", interventions=(_CLIP, iv.TargetEntropy())),
    "reference_kl": Method("minus β ∂KL(π‖π_ref)/∂z", interventions=(_CLIP, iv.ReferenceKL())),
    "reference_k1": Method("the gradient of the k1 estimate", interventions=(_CLIP, iv.K1Penalty())),
    "reference_k2": Method("the gradient of the k2 estimate", interventions=(_CLIP, iv.K2Penalty())),
    "reference_k3": Method("the gradient of the k3 estimate", interventions=(_CLIP, iv.K3Penalty())),
    "reward_kl": Method("the KL penalty in the reward", interventions=(_CLIP, iv.RewardKL())),
    "prorl": Method(
        "reference KL with resets, Clip-Higher, dynamic sampling",
        interventions=(iv.ClipHigher(), iv.ProRL(), iv.DynamicSampling()),
    ),
    "simplerl_zoo": Method(
        "GRPO with k3 reference KL and entropy bonus",
        interventions=(_CLIP, iv.K3PenaltyReleased(1e-4), iv.EntropyBonus(1e-3)),
    ),
    "log_barrier": Method("adds λ (1/K − π)", adv.RLOO(), (iv.LogBarrier(),), aggregation=_SUM),
    "adaptive_kl": Method("PPO's KL penalty with a moving weight", interventions=(iv.AdaptiveKL(),)),
    # other updates
    "npg": Method("natural policy gradient", adv.RLOO(), (), update=NaturalPG(), aggregation=_SUM),
    "trpo": Method("natural direction, a step of given KL", adv.RLOO(), (), update=TRPO(), aggregation=_SUM),
    # other rewards
    "random_reward": Method("coin flips for rewards", reward=rewards.RandomReward()),
    "format_reward": Method("1 for every second action", reward=rewards.FormatReward()),
    "incorrect_reward": Method("1 − r", reward=rewards.IncorrectReward()),
    "majority_reward": Method("1 for the mode", reward=rewards.MajorityReward()),
    "self_certainty": Method("KL(uniform‖π) for reward", reward=rewards.SelfCertainty()),
    "entropy_reward": Method("−H for reward", reward=rewards.EntropyReward()),
}


def build(
    name: str,
    *,
    step_size: Any = 1.0,
    mode: str = "sampled",
    groups: int = 16,
    group_size: int | None = None,
    update: Any = None,
    **numbers: Any,
) -> Algorithm:
    """The algorithm of a named method with its own numbers, in mode "exact" (all actions) or "sampled".

    `update` replaces the method's update (VanillaPG for most), `step_size` is η. Raises InputError for an unknown name,
    mode or number and suggests the nearest.
    """
    chosen = METHODS[check_choice("method", name, METHODS)].replace_numbers(numbers)
    parts = (chosen.advantage, chosen.reward, chosen.process, chosen.aggregation)
    size = chosen.group_size if group_size is None else group_size
    exact = check_choice("mode", mode, ("exact", "sampled")) == "exact"
    base: Any = Exact(*parts) if exact else Sampled(groups, size, *parts)
    estimator = base if chosen.around is None else dataclasses.replace(chosen.around, base=base)
    made = with_step_size(chosen.update if update is None else update, step_size)
    return Algorithm(made, estimator, chosen.interventions)


def merged(logits: Any, start: Any, share: float) -> Any:
    """share · z + (1 − share) · z₀: Hindsight Merging with an earlier checkpoint; masked actions stay masked.

    Under natural PG on a bandit it is exactly the checkpoint at the time share · T (T17), under vanilla PG it is not.
    """
    return share * softmax(logits).logits + (1.0 - share) * softmax(start).logits
