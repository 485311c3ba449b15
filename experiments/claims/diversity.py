"""The diversity of right answers: who keeps it, what pass@k says of it, what widens it, what drafts make of it."""

from functools import cache

import jax.numpy as jnp
import numpy as np

from softmaxdyn.advantages.outcomes import Advantage, per_token
from softmaxdyn.algorithms import Algorithm
from softmaxdyn.comparison import crossing
from softmaxdyn.configs import Number, config
from softmaxdyn.estimators import Exact, Sampled
from softmaxdyn.interventions import ProRL
from softmaxdyn.ledger import Finding, claim, exactly, mean, over_seeds, share
from softmaxdyn.methods import build
from softmaxdyn.plots import COLOURS, DASHES, labelled
from softmaxdyn.policy import entropy
from softmaxdyn.problems import Bandit
from softmaxdyn.updates import NaturalPG, VanillaPG

from .worlds import exact, follow, policies, pools, realistic_pools, state_means

ABOVE_ZERO = np.finfo(float).tiny
LEVEL = 0.85  # of the mean return, where methods are compared
POINTS = 40  # kept of a run
STEP_SIZES = (0.5, 1.0, 2.0)
PSR, NSR, W_REINFORCE = (1.0, 0.0), (0.0, 1.0), (0.1, 1.0)


@config
class SignedSamples(Advantage):
    """A = a R − b (1 − R) for R in {0, 1}: PSR at (1, 0), NSR at (0, 1), W-REINFORCE at (λ, 1)."""

    positive: Number = 1.0  # a
    negative: Number = 1.0  # b

    def __call__(self, outcomes):
        return per_token(outcomes, self.positive * outcomes.score - self.negative * (1.0 - outcomes.score))


def drawn(prompts, advantage):
    """As many groups of 8 as there are prompts, each of a prompt that is drawn."""
    return Sampled(prompts, 8, advantage)


def expected(prompts, advantage):
    """The population: what `drawn` tends to."""
    return Exact(advantage)


def with_inner_entropy(problem, step_size, policy, delta, selected):
    """`state_means`, and H₊: the mean entropy of the policy given a right answer."""
    inner = jnp.mean(entropy(jnp.where(problem.rewards > 0.5, policy.logits, -jnp.inf)))
    return state_means(problem, step_size, policy, delta, selected) | {"inner_entropy": inner}


def prompts_of(size):
    """Prompts of a pool in a run that draws samples."""
    return size(60, 25)


@cache
def realistic(size):
    """Pools like those of a base model: 20 answers, 5 of them right, many prompts near 0 or 1."""
    return realistic_pools(size.seeds, prompts_of(size))


@cache
def standard(size):
    """The standard pool at K = 20, with 5 right answers so that there is diversity to lose."""
    return pools(size.seeds, prompts_of(size), actions=20, correct=0.25)


@cache
def signed(size, world, estimator, weights, step_size=1.0):
    """The fields of runs with `SignedSamples(*weights)` and their steps; `step_size` is that of a prompt of its own."""
    prompts = prompts_of(size)
    algorithm = Algorithm(VanillaPG(step_size * prompts), estimator(prompts, SignedSamples(*weights)))
    steps = round(size(160, 120) / step_size)
    fields, _ = follow(world(size), algorithm, steps, every=steps // POINTS, observe=with_inner_entropy)
    return fields | {"step": np.broadcast_to(np.linspace(0.0, steps, POINTS + 1), fields["entropy"].shape)}


def at_level(run, name):
    """The field `name` of each seed where its return first crosses `LEVEL`."""
    return crossing(run["expected_return"], LEVEL, run[name])


def against_return(run, name, grid):
    """The field `name` of each seed as a function of its return, [N, grid]."""
    return np.stack([np.interp(grid, r, y) for r, y in zip(run["expected_return"], run[name], strict=True)])


def band(ax, x, values, style, label):
    """The mean of values [N, …] over the seeds as a line, and the 95 % range of that mean as a band."""
    middle, error = values.mean(0), 1.96 * values.std(0, ddof=1) / np.sqrt(len(values))
    colour = COLOURS[style % len(COLOURS)]
    ax.plot(x, middle, color=colour, linestyle=DASHES[style % len(DASHES)], label=label)
    ax.fill_between(x, middle - error, middle + error, color=colour, alpha=0.2, linewidth=0)


def lead(size, world, estimator, step_size=1.0):
    """H₊(NSR) − H₊(PSR) of each seed at the matched return."""
    ends = [at_level(signed(size, world, estimator, weights, step_size), "inner_entropy") for weights in (NSR, PSR)]
    return ends[0] - ends[1]


@claim(
    "C40",
    "At equal accuracy, training on wrong samples alone (NSR) keeps diversity among the right answers that training on "
    "right samples alone (PSR) destroys.",
    source="Zhu et al. 2025 (arXiv:2506.01347)",
    threshold="H₊ at matched R; exact difference 0",
)
def wrong_samples_keep_diversity(size):
    """Two pools of 60 prompts with 20 answers of which 5 are right: the standard one (logits N(0, 1)) and a realistic
    one (pass rates Beta(0.5, 0.4)). PSR (A = R) and NSR (A = −(1 − R)) by vanilla PG with own step size 1 of each
    prompt, once with samples (60 groups of 8 a step) and once in expectation. H₊ is the mean entropy inside the right
    answers; it is compared where the mean return first reaches 0.85. The claim wants H₊(NSR) − H₊(PSR) above 0 both
    with samples and in expectation. Then samples on the realistic pool with other step sizes, runs of equal length ηt.
    """
    sizes = STEP_SIZES[size(0, 1) : size(3, 2)]
    wanted = {"at_least": ABOVE_ZERO}
    name = f"H₊(NSR) − H₊(PSR) at R = {LEVEL}"
    sampled, plain = lead(size, realistic, drawn), lead(size, standard, drawn)
    null = max(np.nanmax(abs(lead(size, world, expected))) for world in (realistic, standard))
    leads = [lead(size, realistic, drawn, step_size) for step_size in sizes]
    kept = {
        weights: at_level(signed(size, realistic, drawn, weights), "inner_entropy")
        / signed(size, realistic, drawn, weights)["inner_entropy"][:, 0]
        for weights in (PSR, NSR)
    }
    ours = mean(f"{name}, samples, realistic pool", sampled, **wanted)
    other = mean(f"{name}, samples, standard pool", plain, deciding=False, **wanted)
    zero = exactly("the same in expectation, largest of all seeds and both pools", null, at_least=1e-9)
    listed = ", ".join(f"{np.nanmean(x):.3f}" for x in leads)
    grid = np.linspace(0.6, 0.9, 31)
    runs = {"PSR, samples": (drawn, PSR), "NSR, samples": (drawn, NSR), "both, expected": (expected, NSR)}
    curves = {
        label: against_return(signed(size, realistic, estimator, weights), "inner_entropy", grid)
        for label, (estimator, weights) in runs.items()
    }

    def path(ax):
        for style, (label, values) in enumerate(curves.items()):
            band(ax, grid, values, style, label)
        labelled(ax, "mean return, R", "entropy of right answers, H₊ (nats)", columns=2)

    def noise(ax):
        measured = [mean("", x) for x in leads]
        low, high = (np.array([abs(getattr(x, end) - x.value) for x in measured]) for end in ("low", "high"))
        ax.errorbar(sizes, [x.value for x in measured], [low, high], marker="o", color=COLOURS[0], label="NSR − PSR")
        ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
        labelled(ax, "own step size of a prompt, η", f"difference at R = {LEVEL} (nats)")

    return Finding(
        (ours, other, zero),
        only_when="the gradient is sampled, on a pool whose prompts start near 0 and 1" if zero.value <= 1e-9 else "",
        says=f"With samples PSR keeps {np.nanmean(kept[PSR]):.0%} of H₊ and NSR {np.nanmean(kept[NSR]):.0%}: "
        f"{ours.value:.3f} nats apart. In expectation the two paths are one (largest difference {zero.value:.1e}): "
        "score weights that depend on right or wrong alone share one direction. The whole difference is noise.",
        boundary=f"It goes with the noise: {listed} nats at η = {', '.join(f'{s:g}' for s in sizes)}. On the standard "
        f"pool, where all prompts start alike, it is {other.value:.4f} [{other.low:.4f}, {other.high:.4f}].",
        meaning="What PSR does to diversity is the rich-get-richer of small samples: a larger batch or a smaller step "
        "would cure it as well as dropping the right samples does. NSR loses diversity too, only less.",
        table={"return": grid, **{label: x.mean(0) for label, x in curves.items()}},
        panels=(path, noise),
    )


def ratio_of_means(x, y):
    """mean(x)/mean(y)."""
    return x.mean() / y.mean()


def share_of_gap(ours, best, worst):
    """(ours − worst)/(best − worst) of the means: 1 is as good as the best."""
    return (ours.mean() - worst.mean()) / (best.mean() - worst.mean())


@claim(
    "C41",
    "W-REINFORCE with λ = 0.1 makes the best trade: the diversity of NSR in fewer steps.",
    source="Zhu et al. 2025 (arXiv:2506.01347)",
    threshold="H₊ near NSR (0.9 of the gap to PSR), steps fewer",
)
def weighted_reinforce_trades_best(size):
    """The realistic pool of C40 (60 prompts, 20 answers, 5 right) with samples, own step size 1, scores λ on right and
    −1 on wrong samples: λ = 0 (NSR), 0.1, 0.3, 1, and PSR. H₊ and the number of steps are taken where the mean return
    first reaches 0.85. "Near" is at least 0.9 of the way from PSR's H₊ to NSR's. The control is NSR with a larger step,
    1 + λ times: in expectation it is as fast as λ (T16).
    """
    weights = {"NSR": NSR, "λ = 0.1": W_REINFORCE, "λ = 0.3": (0.3, 1.0), "λ = 1": (1.0, 1.0), "PSR": PSR}
    controls = {"NSR × 1.1": (0.0, 1.1), "NSR × 1.3": (0.0, 1.3), "NSR × 2": (0.0, 2.0)}
    runs = {name: signed(size, realistic, drawn, pair) for name, pair in (weights | controls).items()}
    inner, step = ({name: at_level(run, field) for name, run in runs.items()} for field in ("inner_entropy", "step"))
    kept = over_seeds(
        "share of the gap PSR … NSR in H₊ that is kept",
        share_of_gap,
        *(inner[name] for name in ("λ = 0.1", "NSR", "PSR")),
        at_least=0.9,
    )
    faster = over_seeds("steps over those of NSR", ratio_of_means, step["λ = 0.1"], step["NSR"], at_most=1.0 - 1e-9)
    beside = {"deciding": False, "at_least": ABOVE_ZERO}
    over = mean("H₊ less that of NSR with a step 1.1 times as large", inner["λ = 0.1"] - inner["NSR × 1.1"], **beside)
    pace = over_seeds(
        "steps over those of NSR with a step 1.1 times as large",
        ratio_of_means,
        step["λ = 0.1"],
        step["NSR × 1.1"],
        at_most=1.0 - 1e-9,
        deciding=False,
    )

    def frontier(ax):
        for style, (label, group) in enumerate((("λ of W-REINFORCE, PSR", weights), ("NSR, larger step", controls))):
            x, y = ([np.nanmean(values[name]) for name in group] for values in (step, inner))
            error = [1.96 * np.nanstd(inner[name]) / np.sqrt(size.seeds) for name in group]
            ax.errorbar(x, y, error, fmt="so"[style], markersize=4, linewidth=0.6, color=COLOURS[style], label=label)
            for name, *place in zip(group, x, y, strict=True):
                ax.annotate(name, place, xytext=(3, 3 - 10 * style), textcoords="offset points", fontsize=6)
        labelled(ax, f"steps to R = {LEVEL}", f"H₊ at R = {LEVEL} (nats)")

    return Finding(
        (kept, faster, over, pace),
        says=f"λ = 0.1 keeps {kept.value:.0%} of the gap and needs {1 - faster.value:.0%} fewer steps than NSR. "
        f"Against NSR with a step 1.1 times as large H₊ differs by {over.value:.4f} [{over.low:.4f}, {over.high:.4f}], "
        f"the number of steps by {pace.value - 1:+.1%}.",
        boundary=f"λ is a dial between the two: at λ = 1 the steps fall to {np.nanmean(step['λ = 1']):.0f} of "
        f"{np.nanmean(step['NSR']):.0f} and H₊ to {np.nanmean(inner['λ = 1']):.3f}; NSR with twice the step has "
        f"{np.nanmean(inner['NSR × 2']):.3f} after {np.nanmean(step['NSR × 2']):.0f}.",
        meaning="What the right samples of W-REINFORCE buy is speed, and a learning rate buys it too: compare it with "
        "NSR at a tuned learning rate before crediting λ.",
        table={
            "method": list(runs),
            "steps": [np.nanmean(x) for x in step.values()],
            "inner entropy": [np.nanmean(x) for x in inner.values()],
        },
        panels=(frontier,),
    )


KS = np.arange(1, 257)
SHARES = (0.0, 0.1, 0.3, 0.5, 1.0)


@config
class Blended:
    """δ_s = η ((1 − c) g_s + c Σ_t g_t): `KernelPG` with the `blended_kernel` of share c, without forming it."""

    step_size: Number = 1.0
    share: Number = 0.0  # c

    def init(self, logits):
        """No state."""
        return self

    def __call__(self, gradient, policy, visits):
        return self.step_size * ((1.0 - self.share) * gradient + self.share * jnp.sum(gradient, 0)), self


def permuted(setting, seed):
    """The setting with the actions of every prompt in an order of its own: prompts agree on none."""
    states, actions = setting.problem.shape
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(actions), (states, 1)), axis=1)
    rewards, logits = (np.take_along_axis(x, order, 1) for x in (setting.problem.rewards, setting.logits))
    return setting._replace(problem=Bandit(rewards), logits=logits)


@cache
def mixed(size):
    """The realistic pools, each prompt's actions in an order of its own."""
    return [permuted(each, seed) for seed, each in enumerate(realistic(size))]


@cache
def one_right(size):
    """The standard pool at K = 20 with one right answer."""
    return pools(size.seeds, prompts_of(size), actions=20, correct=0.05)


def success(settings, logits):
    """The probability of a right answer, [N, S]."""
    return np.sum(policies(logits) * np.stack([each.problem.rewards for each in settings]), -1)


def pass_at(p):
    """pass@k = mean over the prompts of 1 − (1 − p)ᵏ for every k of `KS`, [N, 256]."""
    return 1.0 - np.mean((1.0 - p)[..., None] ** KS, axis=1)


def trained(size, world, algorithm, steps, inner_steps=1):
    """(p before, p after), [N, S], of runs of `algorithm`."""
    settings = world(size)
    _, final = follow(settings, algorithm, steps, every=steps, inner_steps=inner_steps)
    return success(settings, np.stack([each.logits for each in settings])), success(settings, final)


def crosses(before, after):
    """Whether the base policy is ahead at some k up to 256, one a seed."""
    return np.any(pass_at(after) < pass_at(before) - 1e-12, axis=1)


@claim(
    "C48",
    "The base model beats the trained one at pass@k for large k.",
    source="Yue et al. 2025 (arXiv:2504.13837)",
    threshold="a crossing point k* ≤ 256 exists (in most pools)",
)
def base_wins_at_large_k(size):
    """Exact pass@k, k = 1 … 256, of the policy before and after training on the realistic pool (60 prompts, 20 answers,
    5 right, pass rates Beta(0.5, 0.4)) and on the standard one (one answer of 20 right): exact PG (200 steps, own step
    size 1) and GRPO (60 groups of 8, 8 inner steps, PPO clip; 100 steps). A pool has a crossing where the base is ahead
    at some k. Then, on the realistic pool: REINFORCE++ (rewards centred on the batch, not on the group), and exact PG
    with a share c of each row of logits common to all prompts, whose answers lie in different orders.
    """
    prompts = prompts_of(size)
    grpo = build("grpo", groups=prompts, step_size=prompts / 8)
    pairs = {f"exact PG, c = {c:g}": trained(size, mixed, exact(Blended(float(prompts), c)), 200) for c in SHARES}
    pairs["GRPO"] = trained(size, mixed, grpo, 100, 8)
    if not size.quick:
        batch_centred = build("reinforce_pp", groups=prompts, step_size=float(prompts))
        pairs["GRPO, standard pool"] = trained(size, one_right, grpo, 100, 8)
        pairs["REINFORCE++"] = trained(size, mixed, batch_centred, 200)
    decides = ("GRPO", "exact PG, c = 0")
    found = {
        name: share(f"pools with a crossing, {name}", crosses(*pair), at_least=0.5, deciding=name in decides)
        for name, pair in pairs.items()
    }
    fallen = {name: np.mean(after < before - 1e-12) for name, (before, after) in pairs.items()}
    crossing_ones = [name for name, each in found.items() if each.inside]
    base = pass_at(pairs["GRPO"][0]).mean(0)
    drawn_ones = list(dict.fromkeys(["GRPO", *crossing_ones[:1], *crossing_ones[-1:]]))

    def curves(ax):
        ax.plot(KS, base, color="0.4", label="base")
        for style, name in enumerate(drawn_ones):
            band(ax, KS, pass_at(pairs[name][1]), style, name)
        ax.set_xscale("log")
        labelled(ax, "k", "mean pass@k")

    def gain(ax):
        for style, name in enumerate(drawn_ones):
            band(ax, KS, pass_at(pairs[name][1]) - pass_at(pairs[name][0]), style, name)
        ax.axhline(0.0, color="0.7", linewidth=0.6, zorder=0)
        ax.set_xscale("log")
        ax.set_ylim(-0.05, 0.05)
        labelled(ax, "k", "pass@k, trained less base")

    return Finding(
        tuple(found.values()),
        only_when=f"training makes some prompts worse, here {' and '.join(crossing_ones)}" if crossing_ones else "",
        says=f"{fallen['exact PG, c = 0']:.1%} of the prompts end lower under exact PG and {fallen['GRPO']:.1%} under "
        "GRPO, so the trained policy is ahead at every k: where prompts have logits of their own, scores centred on "
        "the group raise right answers and lower wrong ones.",
        boundary="Prompts made worse, pools with a crossing: "
        + "; ".join(f"{fallen[name]:.1%}, {each.value:.0%} ({name})" for name, each in found.items())
        + ".",
        meaning="A crossing is a sign of damage: of interference between prompts that share parameters, or of a "
        "baseline that is not the prompt's own. It does not follow from falling entropy.",
        table={"k": KS, "base": base, **{name: pass_at(after).mean(0) for name, (_, after) in pairs.items()}},
        panels=(curves, gain),
    )


STAGES, COEFFICIENT = 4, 0.5  # of a run, and the β of the reference KL
WIDTHS = 2 ** np.arange(3, 14)  # samples a prompt and step; BroRL went to 512


def stage_of(size):
    """Outer steps of a stage."""
    return size(40, 20)


def stage_ends(size, algorithm, inner_steps=1):
    """The mean return at the start and at the end of each stage, [N, STAGES + 1], and the logits at the end."""
    fields, final = follow(
        realistic(size), algorithm, stage_of(size) * STAGES, every=stage_of(size), inner_steps=inner_steps
    )
    return fields["expected_return"], final


def prolonged(size, coefficient, stage):
    """The returns of ProRL's parts: GRPO with two clips and dynamic sampling, and a KL to a reference that is reset."""
    prompts = prompts_of(size)
    numbers = {"coefficient": coefficient, "stage": float(stage), "step_size": prompts / 8}
    return stage_ends(size, build("prorl", groups=prompts, **numbers), 8)[0]


def one_step(generator, prob, right, width, baseline):
    """The success probability after one step of own size 1 with `width` samples of each row and scores R − baseline."""
    count = generator.multinomial(width, prob) / width
    score = count * (right - baseline(count, right))
    moved = prob * np.exp(score - prob * score.sum(-1, keepdims=True))
    return (moved * right).sum(-1) / moved.sum(-1)


def half(count, right):
    """The baseline ½: rewards of −½ and ½ around no mean."""
    return 0.5


def group_mean(count, right):
    """The mean reward of the samples of the row."""
    return (count * right).sum(-1, keepdims=True)


def shares_falling(size, baseline):
    """The share of prompts whose success probability falls in one step, [N, widths]."""
    found = []
    for seed, setting in enumerate(realistic_pools(size.seeds, 200)):
        generator, prob, right = np.random.default_rng(seed), policies(setting.logits), setting.problem.rewards
        before = (prob * right).sum(-1)
        after = [one_step(generator, prob, right, width, baseline) for width in WIDTHS]
        found.append([np.mean(x < before - 1e-12) for x in after])
    return np.array(found)


@claim(
    "C49",
    "Resets of the reference (ProRL) keep the return rising, and wider rollouts (BroRL) make prompts that lose right "
    "mass in a step disappear.",
    source="Liu et al. 2025 (arXiv:2505.24864), Hu et al. 2025 (arXiv:2510.01180)",
    threshold="R rises per reset; share of states whose Q_pos falls in one step → 0 with N",
)
def resets_and_width(size):
    """ProRL: GRPO (groups of 8, 8 inner steps) with clips at 0.2 and 0.28, dynamic sampling and a reference KL, β =
    0.5, on the realistic pool of C40; 4 stages of 40 steps, the reference reset after each. The statistic is the least
    certain of the rises of the mean return from the end of one stage to that of the next. Controls: no reset, no KL.
    Exact NPG with the same stages is compared with its limit, π₀ exp(4r/β). BroRL: one step from the start of realistic
    pools of 200 prompts, own step size 1, with N = 8 … 8192 samples of each prompt and scores R − ½; the statistic is
    the share of prompts whose right mass falls, at the largest N. Control: scores R − group mean.
    """
    reset, kept = (prolonged(size, COEFFICIENT, stage) for stage in (stage_of(size), 10_000))
    free = prolonged(size, 0.0, stage_of(size))
    rise = np.diff(reset, axis=1)
    rises = [mean(f"rise of R after reset {m}", rise[:, m], at_least=ABOVE_ZERO) for m in range(1, STAGES)]
    natural = exact(NaturalPG(0.3 / COEFFICIENT), ProRL(coefficient=COEFFICIENT, stage=float(stage_of(size))))
    _, final = stage_ends(size, natural)
    limit = [each.logits + STAGES / COEFFICIENT * each.problem.rewards for each in realistic(size)]
    error = abs(policies(final) - policies(np.stack(limit))).max()
    falling, centred = shares_falling(size, half), shares_falling(size, group_mean)
    named = [(f"share of prompts that lose right mass, N = {WIDTHS[i]}", falling[:, i]) for i in (0, 6, -1)]
    narrow, wide = (mean(*each, deciding=False) for each in named[:2])
    widest = mean(*named[2], at_most=1e-3)
    control = exactly("the same with scores R − group mean, largest of all N", centred.max(), deciding=False)
    plateau = mean("rise of R in the last stage without a reset", np.diff(kept, axis=1)[:, -1], deciding=False)
    without = mean("R at the end without any KL, less that with resets", free[:, -1] - reset[:, -1], deciding=False)

    def stages(ax):
        for style, (label, values) in enumerate({"resets": reset, "no reset": kept, "no KL": free}.items()):
            band(ax, stage_of(size) * np.arange(STAGES + 1), values, style, label)
        labelled(ax, "outer step", "mean return, R")

    def widths(ax):
        for style, (label, values) in enumerate({"R − ½": falling, "R − group mean": centred}.items()):
            band(ax, WIDTHS, values, style, label)
        ax.set_xscale("log", base=2)
        labelled(ax, "samples a prompt, N", "share losing right mass")

    return Finding(
        (min(rises, key=lambda each: each.low), widest, narrow, wide, control, plateau, without),
        says=f"R rises by {', '.join(f'{each.value:.3f}' for each in rises)} after the resets, and in the last stage "
        f"by {plateau.value:.3f} without one; exact NPG ends at π₀ exp(4r/β) (largest error {error:.1e}). Right mass "
        f"falls in {narrow.value:.1%} of the prompts at N = 8, {wide.value:.1%} at 512, {widest.value:.1%} at 8192.",
        boundary=f"Without any KL R ends at {without.value:+.3f} from that: a reset undoes the penalty. With "
        f"scores centred on the group the share is {control.value:.1%} at every N: width has nothing to cure.",
        meaning="Resets help a run that its own KL holds back; lowering β does the same. Wide groups matter for "
        "prompts whose scores are not centred on the group.",
        table={"samples": WIDTHS, "R - 1/2": falling.mean(0), "R - group mean": centred.mean(0)},
        panels=(stages, widths),
    )


def frozen(logits, target):
    """No step: the draft stays."""
    return 0.0


def cross_entropy(logits, target):
    """The slope of Σ p log q in the draft's logits: p − q."""
    return target - policies(logits)


def total_variation(logits, target):
    """The slope of Σ min(p, q) in the draft's logits: q (1{q < p} − Σ_b q_b 1{q_b < p_b})."""
    q = policies(logits)
    behind = np.where(q < target, q, 0.0)
    return behind - q * behind.sum(-1, keepdims=True)


TRAINED_DRAFTS = {"cross-entropy": cross_entropy, "total variation": total_variation}


def acceptance(logits, targets, slope, step_size=0.5):
    """Mean Σ min(p, q) over the prompts at every target [N, T, S, K]; the draft q starts at `logits` and climbs."""
    found = []
    for target in np.moveaxis(targets, 1, 0):
        found.append(np.minimum(policies(logits), target).sum(-1).mean(-1))
        logits = logits + step_size * slope(logits, target)
    return np.stack(found, 1)


def policy_and_entropy(problem, step_size, policy, delta, selected):
    """The policy at each step, and its entropies."""
    return {"prob": policy.prob, "entropy": policy.entropy}


def signed_fit(entropy, rate):
    """R² of a line of the rate in −H for each seed [N, T]; negative where the rate rises with H."""
    r = np.array([np.corrcoef(-x, y)[0, 1] for x, y in zip(entropy, rate, strict=True)])
    return r * abs(r)


@claim(
    "C50",
    "The share of a draft's tokens that the trained policy accepts is a line in −H, and a greedy draft's is at least "
    "exp(−H).",
    source="Bebop (arXiv:2606.12370)",
    threshold="R² of acceptance vs H ≥ 0.9 (rising in −H); max p ≥ exp(−H) always",
)
def acceptance_is_linear(size):
    """Exact PG (own step size 1, 200 steps) on the realistic pool of C40 (60 prompts) moves the target p. Drafts q, one
    row a prompt: frozen at π₀; or from π₀ with N(0, 1) added to its logits, a step up Σ p log q (cross-entropy) or up
    Σ min(p, q) (total variation), step size 0.5, for each step of the target. Acceptance is the mean of Σ min(p, q);
    that of a perfect greedy draft is the mean of max p. The statistic is R² of a line in −H along the run of each seed,
    counted negative where acceptance falls with −H. Then cross-entropy with other step sizes.
    """
    settings = realistic(size)
    run, _ = follow(settings, exact(VanillaPG(float(prompts_of(size)))), 200, every=2, observe=policy_and_entropy)
    prob, h = run["prob"], run["entropy"].mean(-1)
    start = np.stack([each.logits for each in settings])
    noisy = start + np.random.default_rng(0).standard_normal(start.shape)
    rates = {"frozen": acceptance(start, prob, frozen)}
    rates |= {name: acceptance(noisy, prob, slope) for name, slope in TRAINED_DRAFTS.items()}
    rates["greedy"] = prob.max(-1).mean(-1)
    fits = {
        name: mean(f"signed R² of acceptance on −H, {name} draft", signed_fit(h, rate), at_least=0.9)
        for name, rate in rates.items()
    }
    slack = exactly("smallest max p − exp(−H)", (prob.max(-1) - np.exp(-run["entropy"])).min(), at_least=-1e-14)
    others = {eta: signed_fit(h, acceptance(noisy, prob, cross_entropy, eta)).mean() for eta in (0.05, 0.2, 0.5, 2.0)}
    frozen_rate = rates["frozen"].mean(0)

    def lines(ax):
        for style, (name, rate) in enumerate(rates.items()):
            band(ax, h.mean(0), rate, style, name)
        labelled(ax, "mean entropy of the target, H (nats)", "acceptance")

    def floor(ax):
        grid = np.linspace(0.0, np.log(20.0), 50)
        ax.plot(
            run["entropy"][0, ::20].ravel(), prob[0, ::20].max(-1).ravel(), ".", markersize=2, label="policies of a run"
        )
        ax.plot(grid, np.exp(-grid), color=COLOURS[1], label="exp(−H)")
        labelled(ax, "entropy of a prompt, H (nats)", "max p")

    return Finding(
        (*fits.values(), slack),
        only_when="the draft is greedy; a trained one at some learning rates only" if fits["greedy"].inside else "",
        says=f"Signed R²: {', '.join(f'{each.value:.3f} ({name})' for name, each in fits.items())}. The frozen draft "
        f"is accepted less and less as H falls: {frozen_rate[0]:.2f} at first, {frozen_rate[-1]:.2f} at the end. "
        "max p ≥ exp(−H) on every policy.",
        boundary="A draft by cross-entropy has to keep pace: signed R² "
        + ", ".join(f"{value:.2f} at step size {eta:g}" for eta, value in others.items())
        + ".",
        meaning="Low entropy makes a policy easy to draft for only if the draft is trained along with it; a draft from "
        "before training loses acceptance as entropy falls.",
        table={"entropy": h.mean(0), **{name: rate.mean(0) for name, rate in rates.items()}},
        panels=(lines, floor),
    )
