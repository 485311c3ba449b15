"""An engine of a sweep that computes nothing: its numbers follow from the cell, the seed and the step."""

import numpy as np

from softmaxdyn.sweeps.loop import Machine
from softmaxdyn.sweeps.spec import plan_of

SPEC = {
    "steps": 20,
    "every": 3,
    "seeds": 5,
    "problem": ["mei", "mirror", "sign_flip"],  # 3, 3 and 4 actions: two families
    "method": [{"name": "rloo", "step_size": [0.1, 0.2]}, {"name": "kl_cov", "fraction": 0.1}, "pg"],
}
PLAN = plan_of(SPEC)
RUNS = 3 * (3 * 5 + 1)


def families(plan):
    """Cells by the shape of their table."""
    shapes = [cell.setting.logits.shape for cell in plan.cells]
    return [[number for number, each in enumerate(shapes) if each == shape] for shape in dict.fromkeys(shapes)]


class Numbers:
    """The results of runs; those of 3 actions have a measure, those of 4 another intervention."""

    def __init__(self, plan, cells, block, devices=1):
        self.plan, self.size, self.calls = plan, block * devices, 0
        self.actions = plan.cells[cells[0]].setting.logits.size

    def __call__(self, cell, seed):
        self.calls += 1
        run = np.sin(12.9898 * cell + 78.233 * seed)
        rows = np.sin(1e4 * run[:, None] + self.plan.steps)
        ends = {"final_expected_return": run, "final_entropy": run**2}
        if self.actions == 3:
            return {"entropy": rows, "selected": rows[..., None], "mean_length": rows + 1.0, **ends}
        return {"entropy": rows, "selected": np.stack([rows, -rows], -1), **ends}


MACHINE = Machine(families, Numbers)
