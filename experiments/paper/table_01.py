"""How large are the covariances of the top tokens, and does the tail need a link between log π and A?

Stands beside table 1 of arXiv:2505.22617: the mean covariance of the top fractions of the tokens at the first step.
Run: python experiments/paper/table_01.py [--quick]

|            | the paper                                 | here                                                       |
| ---------- | ----------------------------------------- | ---------------------------------------------------------- |
| model      | Qwen2.5-7B                                | pools of 10 actions, pools as pass counts of a base model  |
|            |                                           | give them, token trees with logits N(0, σ²)                |
| covariance | (log π − mean)(A − mean) over a batch     | the same                                                   |
| advantages | GRPO, groups of 8                         | the same                                                   |
| batch      | of unknown size                           | 100 000 tokens, 20 batches                                 |
| control    | none                                      | the same tokens with their advantages permuted             |

Of the paper's column the first and the last number are given.
"""

import numpy as np
from parts import claims_module, size, write
from tables import write_markdown

from softmaxdyn.diagnostics.scores import covariance_score, order
from softmaxdyn.diagnostics.tail import TAILS, covariance_tail
from softmaxdyn.plots import COLOURS, DASHES, three_panels

tokens, worlds = claims_module("tokens"), claims_module("worlds")
PAPER = {2e-4: 5.654, 1.0: 0.003}
"""Top fraction → mean covariance in the paper, nats."""


def batches(size):
    """{world: (settings, mean length of a response)}."""
    trees = {f"tree, σ = {s:g}": (worlds.trees(size.seeds, 50, 5, 4, s), 3.0) for s in (2.0, 4.0)}
    pools = {"pool, σ = 1": worlds.pools(size.seeds), "pass counts": worlds.realistic_pools(size.seeds)}
    return {name: (settings, 1.0) for name, settings in pools.items()} | trees


def tails(size):
    """{world: (mean covariance of the top fractions [N, 6], the same with permuted advantages [N, 6])}."""
    found = {}
    for name, (settings, length) in batches(size).items():
        groups = int(size(100_000, 10_000) / length / 8)
        logs = [tokens.batch(made, groups, seed) for seed, made in enumerate(settings)]
        each = [covariance_tail(x, order(covariance_score(x)), permutations=2, seed=i) for i, x in enumerate(logs)]
        found[name] = np.array([x.mean for x in each]), np.array([x.permuted_mean.mean(0) for x in each])
    return found


def drawn(found):
    """Mean covariance of the top against the fraction; its ratio to that with permuted advantages; the whole mean."""
    with three_panels(2.6) as (figure, (left, middle, right)):
        for number, (name, (mean, permuted)) in enumerate(found.items()):
            line = {"color": COLOURS[number], "linestyle": DASHES[number], "marker": ".", "markersize": 4}
            left.loglog(TAILS[:-1], mean.mean(0)[:-1], **line, label=name)
            middle.semilogx(TAILS[:-1], permuted.mean(0)[:-1] / mean.mean(0)[:-1], **line)
            right.plot(mean[:, -1], np.full(len(mean), number), "|", color=COLOURS[number])
        left.plot(*zip(*[each for each in PAPER.items() if each[0] < 1.0], strict=True), "kx", label="paper")
        left.set(xlabel="top fraction of the tokens", ylabel="mean covariance (nats)")
        middle.set(xlabel="top fraction of the tokens", ylabel="with A permuted / as it is", ylim=(0.0, None))
        right.axvline(PAPER[1.0], color="k", linewidth=0.8, linestyle=DASHES[2])
        right.set_yticks(range(len(found)), list(found))
        right.set(xlabel="mean covariance of all (nats)", ylim=(-0.5, len(found) - 0.5))
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def main():
    """Measures the tails, writes table, figure and numbers."""
    found = tails(size())
    columns = {"tokens": [f"top {100 * each:g} %" for each in TAILS[:-1]] + ["all"]}
    columns["paper"] = [PAPER.get(each, "–") for each in TAILS]
    for name, (mean, permuted) in found.items():
        columns |= {name: mean.mean(0), f"{name}, A permuted": permuted.mean(0)}
    write_markdown("table_01", columns, "Mean covariance of the tokens, nats; means over the batches.")
    top = {name: mean.mean(0)[0] for name, (mean, _) in found.items()}
    control = {name: permuted.mean(0)[0] / top[name] for name, (_, permuted) in found.items()}
    negative = np.mean([mean[:, -1] < 0.0 for mean, _ in found.values()])
    verdict = (
        f"the top .02 % have {', '.join(f'{x:.1f} ({name})' for name, x in top.items())} nats, the paper "
        f"{PAPER[2e-4]:.1f}; permuting the advantages leaves {min(control.values()):.0%} to {max(control.values()):.0%}"
        f" of it; the mean of all is negative in {negative:.0%} of the batches."
    )
    numbers = {key: values for key, values in columns.items() if key != "paper"}
    write("table_01", drawn(found), numbers, verdict)


if __name__ == "__main__":
    main()
