"""What participants were asked, round by round, in the few figures that a release states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dither.reports import Plan


@dataclass(frozen=True)
class AskedRound:
    """One round's questions: how many of each number of attributes, the mechanisms, and what one participant sends."""

    round: int
    sizes: Mapping[int, int]
    mechanisms: Mapping[str, int]
    report_bytes: int
    epsilon: float
    split: bool
    population: float

    def to_json(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "questions_by_size": {str(size): count for size, count in self.sizes.items()},
            "mechanisms": dict(self.mechanisms),
            "report_bytes": self.report_bytes,
            "epsilon": self.epsilon,
            "split": self.split,
            "population": self.population,
        }


def asked_in(plans: Iterable[Plan]) -> tuple[AskedRound, ...]:
    """The summary of the plans of a campaign; report bytes are the longest report's."""
    return tuple(_asked(plan) for plan in plans)


def asked_from_json(data: Iterable[Mapping[str, Any]]) -> tuple[AskedRound, ...]:
    """The inverse of `AskedRound.to_json`."""
    return tuple(
        AskedRound(
            round=int(entry["round"]),
            sizes={int(size): int(count) for size, count in entry["questions_by_size"].items()},
            mechanisms={str(name): int(count) for name, count in entry["mechanisms"].items()},
            report_bytes=int(entry["report_bytes"]),
            epsilon=float(entry["epsilon"]),
            split=bool(entry["split"]),
            population=float(entry["population"]),
        )
        for entry in data
    )


def _asked(plan: Plan) -> AskedRound:
    lengths = [q.mechanism.report_bytes for q in plan.questions]
    return AskedRound(
        round=plan.round,
        sizes=dict(sorted(Counter(len(q.attributes) for q in plan.questions).items())),
        mechanisms=dict(sorted(Counter(q.mechanism.name for q in plan.questions).items())),
        report_bytes=sum(lengths) if plan.split else max(lengths),
        epsilon=plan.epsilon,
        split=plan.split,
        population=plan.population,
    )
