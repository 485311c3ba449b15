"""The fields of a log: arrays of equal length, checked, less the tokens that do not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from softmaxdyn.diagnostics import Log
from softmaxdyn.errors import InputError
from softmaxdyn.logs.columns import LABELS, assign, labels, numbers

_LARGEST = 1e70  # products of two and their squares stay finite
_ROUNDING = 1e-4  # nats: what float32 may put above log 1 = 0, or an entropy below 0


def make_log(fields: Mapping[str, Any], *, drop_nan: bool = False) -> Log:
    """The log that arrays of equal length make, checked; the names as in `read_log`."""
    data = {name: fields[name] for name in assign(list(fields), {}) if fields[name] is not None}
    sizes = {name: len(values) for name, values in data.items()}
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(f"the columns have unequal lengths ({listing}); wanted one value of each a token")
    if not sizes["log_prob"]:
        raise InputError("has no tokens")
    data = {name: labels(name, np.asarray(v), {}) if name in LABELS else numbers(name, v) for name, v in data.items()}
    data, masked = _unmasked(data)
    data, gaps = _finite(data, drop_nan)
    _refuse_huge(data)
    notes = [masked, gaps]
    for name in ("log_prob", "old_log_prob", "entropy"):
        if name in data:
            data[name], note = _within(name, data[name])
            notes.append(note)
    if "group" in data and "episode" in data:
        data["episode"] = data["group"] * (data["episode"].max() + 1) + data["episode"]
    data |= {name: labels(name, data[name], {}).astype(np.int32) for name in LABELS if name in data}
    return Log(**data, notes=tuple(filter(None, notes)))


def _unmasked(data: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], str]:
    mask = data.pop("mask", None)
    if mask is None:
        return data, ""
    wrong = (mask != 0) & (mask != 1)
    if wrong.any():
        first = int(wrong.argmax())
        raise InputError(
            f"mask is {mask[first]:g} in token {first} (the first is 0); wanted 1 (counts) or 0 (does not)"
        )
    if not mask.any():
        raise InputError("has a mask that leaves no token: it is 0 everywhere; wanted 1 where a token counts")
    out = int((mask == 0).sum())
    return _keep(data, mask == 1), f"{out} tokens left out by the mask" if out else ""


def _finite(data: dict[str, np.ndarray], drop: bool) -> tuple[dict[str, np.ndarray], str]:
    unknown = {name: ~np.isfinite(values) for name, values in data.items() if name != "reward"}
    counts = {name: int(bad.sum()) for name, bad in unknown.items() if bad.any()}
    if not counts:
        return data, ""
    keep = ~np.any([unknown[name] for name in counts], axis=0)
    which = ", ".join(f"{name} {count}" for name, count in counts.items())
    what = f"{(~keep).sum()} of {len(keep)} tokens have a value that is missing, NaN or infinite ({which})"
    if not drop:
        raise InputError(f"{what}; pass --drop-nan to leave them out")
    if not keep.any():
        raise InputError(f"{what}; none is left")
    return _keep(data, keep), f"{what}; they are left out"


def _refuse_huge(data: Mapping[str, np.ndarray]) -> None:
    for name, values in data.items():
        huge = np.abs(values) > _LARGEST
        if huge.any():
            what = f"in {huge.sum()} of {len(huge)} tokens (as {values[huge][0]:g})"
            raise InputError(f"{name} is beyond {_LARGEST:g} in size {what}; wanted numbers that can be multiplied")


def _keep(data: dict[str, np.ndarray], keep: np.ndarray) -> dict[str, np.ndarray]:
    return data if keep.all() else {name: values[keep] for name, values in data.items()}


def _within(name: str, values: np.ndarray) -> tuple[np.ndarray, str]:
    """A log-probability is at most 0, an entropy at least 0; rounding is cut off."""
    entropy = name == "entropy"
    beyond = -values if entropy else values
    wrong, side = beyond > _ROUNDING, "below" if entropy else "above"
    if wrong.any():
        wanted = "an entropy in nats" if entropy else "log-probabilities (of probabilities, take the logarithm)"
        worst = values.min() if entropy else values.max()
        raise InputError(f"{name} is {side} 0 in {wrong.sum()} of {len(wrong)} tokens (as {worst:g}); wanted {wanted}")
    cut = int((beyond > 0.0).sum())
    if not cut:
        return values, ""
    return values.clip(min=0.0) if entropy else values.clip(max=0.0), f"{cut} of {name} are {side} 0 by rounding; cut"
