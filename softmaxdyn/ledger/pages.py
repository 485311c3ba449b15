"""The ledger and its claims as pages of Markdown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from softmaxdyn.ledger.findings import ONLY_WHEN, VERDICTS

QUICK = "Quick size: fewer seeds, steps and prompts than at full size, where the verdict may be another"


def page(record: Mapping[str, Any]) -> str:
    """The page of a claim: verdict, picture, numbers, how it was tried, where it stops, what it means."""
    name = record["id"]
    parts = [f"# {name}: {record['statement']}", headline(record)]
    if is_quick(record):
        parts.append(f"{QUICK}: `softmaxdyn reproduce {name}`.")
    if record["figure"]:
        parts.append(f"![The figure of {name}]({name}.png)")
    if record["statistics"]:
        parts.append(_statistics(record["statistics"]))
    parts += [f"## How it was tried\n\n{record['experiment']}", f"Threshold, fixed in advance: {record['threshold']}."]
    for heading, word in (("Where it stops", "boundary"), ("For someone who trains a model", "meaning")):
        if record[word]:
            parts.append(f"## {heading}\n\n{record[word]}")
    numbers = f"numbers: [{name}.csv]({name}.csv); " if record["numbers"] else ""
    parts.append(f"Source: {record['source']}; {numbers}remade by `softmaxdyn reproduce {name}`.")
    return "\n\n".join(parts) + "\n"


def headline(record: Mapping[str, Any]) -> str:
    """The verdict first, then the counterexample where there is one, then what was found."""
    reason = f" {record['cannot']}" if record["cannot"] else ""
    found = [f"**{record['verdict']}{condition(record)}.**{reason}"]
    if record["counterexample"]:
        found.append(f"Counterexample: {record['counterexample']}")
    return " ".join([*found, record["says"]]).strip()


def is_quick(record: Mapping[str, Any]) -> bool:
    """Whether a claim was tried at the quick size."""
    return bool(record["made_by"]["size"] == "quick")


def condition(record: Mapping[str, Any]) -> str:
    """What follows the words "holds only when", and nothing after another verdict."""
    return f" {record['only_when']}" if record["verdict"] == ONLY_WHEN else ""


def counts(records: Sequence[Mapping[str, Any]]) -> str:
    """How many records have each verdict."""
    found = {each: sum(record["verdict"] == each for record in records) for each in VERDICTS}
    return ", ".join(f"{count} {each}" for each, count in found.items() if count)


def ledger(records: Sequence[Mapping[str, Any]]) -> str:
    """The table of all claims; each id leads to its page."""
    lines = [
        "# The ledger",
        "",
        f"{len(records)} claims: {counts(records)}.",
        "",
        "| | claim | verdict | deciding statistic [95 % interval], wanted | source |",
        "| --- | --- | --- | --- | --- |",
    ]
    for record in records:
        deciding = [text(each) for each in record["statistics"] if each["deciding"]]
        verdict = f"**{record['verdict']}**{condition(record)}"
        link = f"[{record['id']}](claims/{record['id']}.md)"
        cells = [link, record["statement"], verdict, "; ".join(deciding) or record["cannot"], record["source"]]
        lines.append(_row(cells))
    made = records[0]["made_by"] if records else {}
    lines += ["", f"Made by softmaxdyn {made.get('softmaxdyn')}, {made.get('size')} size: `softmaxdyn reproduce`."]
    return "\n".join(lines) + "\n"


def text(statistic: Mapping[str, Any]) -> str:
    """name = value [low, high], wanted range."""
    return f"{statistic['name']} = {number(statistic)} (wanted {wanted(statistic)})"


def number(statistic: Mapping[str, Any]) -> str:
    """value [low, high], the interval where there are seeds."""
    value, low, high = (_short(statistic[part]) for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if statistic["seeds"] else value


def wanted(statistic: Mapping[str, Any]) -> str:
    """The range, in words."""
    low, high = statistic["at_least"], statistic["at_most"]
    if low is None and high is None:
        return "nothing"
    if high is None:
        return "> 0" if low == sys.float_info.min else f"≥ {_short(low)}"
    if low is None and high == -sys.float_info.min:
        return "< 0"
    return f"≤ {_short(high)}" if low is None else f"{_short(low)} … {_short(high)}"


def _short(x: float | int | None) -> str:
    return "none" if x is None else f"{x:.4g}".replace("-", "−")


def _statistics(statistics: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| statistic | value [95 % interval] | wanted | seeds | decides |", "| --- | --- | --- | --- | --- |"]
    for each in statistics:
        cells = [
            each["name"],
            number(each),
            wanted(each),
            str(each["seeds"] or "–"),
            "yes" if each["deciding"] else "no",
        ]
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    """A row of a table; a bar in a cell would end it."""
    return f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |"
