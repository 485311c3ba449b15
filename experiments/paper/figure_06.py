"""Do runs of different algorithms lie on one curve of reward against entropy?

Stands beside figure 6 of Cui et al. 2025 (arXiv:2505.22617).
Run: python experiments/paper/figure_06.py (a minute; --quick: fewer methods, into a temporary folder)

|            | the paper                              | here                                                           |
| ---------- | -------------------------------------- | -------------------------------------------------------------- |
| model      | one language model of 7B parameters    | pools of 40 bandits of ten actions, logits N(0, σ²), a panel a |
|            |                                        | σ                                                              |
| tasks      | mathematics                            | one correct action a prompt; 20 seeds                          |
| algorithms | GRPO, RLOO, PRIME                      | the same on samples of 8, GRPO also with 8 inner steps; exact  |
|            |                                        | PG, exact GRPO, exact natural PG                               |
| entropy    | mean of the tokens of a batch          | mean of the prompts, exact                                     |
| reward     | accuracy on validation problems        | expected reward on the prompts that are trained on             |
| measure    | one curve is fitted to all             | the largest |ΔR| from exact PG at equal entropy, and a and b   |
|            |                                        | of each                                                        |
"""

import parts

from softmaxdyn.plots import COLOURS, DASHES, three_panels

curves, coefficients = (parts.claims_module(name) for name in ("curves", "coefficients"))
BASE = "exact PG"


def gap(each, name):
    """The largest |ΔR| of a method from exact PG at equal H, a number a seed."""
    return curves.apart(each[name], each[BASE])


def draw(ax, world, each):
    for style, (name, curve) in enumerate(each.items()):
        line = {"linewidth": 3.0, "alpha": 0.35} if name == BASE else {"linewidth": 1.1}
        h, r = (x.mean(0) for x in curve)
        ax.plot(
            h, r, color=COLOURS[style - 1], linestyle="-" if name == BASE else DASHES[style % 4], label=name, **line
        )
    ax.set(xlabel=f"entropy at {world.name}, H (nats)", ylabel="reward, R")


def table(found):
    """A row a pool, method and step: means over the seeds, a and b of the means, and the gap of the whole run."""
    rows = []
    for world, each in found.items():
        for name, curve in each.items():
            h, r = (x.mean(0) for x in curve)
            whole = *curves.fitted(h[None], r[None])[0], gap(each, name).mean()
            rows += [(world.name, name, *row, *whole) for row in zip(range(curves.ROWS), h, r, strict=True)]
    names = "pool", "method", "step", "H", "R", "a", "b", "largest difference of R"
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def verdict(found):
    said = []
    for world, each in found.items():
        gaps = {name: gap(each, name).mean() for name in each if name != BASE}
        far = max(gaps, key=gaps.get)
        a = [curves.fitted(*curve)[:, 0].mean() for curve in each.values()]
        fine = sum(x <= 0.02 for x in gaps.values())
        said.append(
            f"at {world.name} {fine} of {len(gaps)} methods within 0.02 of {BASE} at equal entropy, the farthest is "
            f"{far} ({gaps[far]:.3f}), and a is {min(a):.3f} … {max(a):.3f}"
        )
    return "; ".join(said)


def main():
    size = parts.size()
    found = {world: coefficients.methods(world, size) for world in curves.PRIORS[::2]}
    with three_panels(2.6) as (figure, axes):
        for ax, (world, each) in zip(axes, found.items(), strict=True):
            draw(ax, world, each)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    parts.write("figure_06", figure, table(found), verdict(found))


if __name__ == "__main__":
    main()
