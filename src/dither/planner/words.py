"""What a forecast says: which method to use, what to beware of, what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from dither.planner.predict import Prediction
from dither.schema import Schema

BASELINE = "independent"
ROUGH = 0.1
LITTLE = 0.95  # of the error without a prior
HINTS = 0.3  # two-way errors above this are hints and no results
MOST_PARTICIPANTS = 50_000_000  # simulated; more people only lower the error
MOST_EPSILON = 12.0

# alone: one attribute; learnt: some method gains by asking pairs; noise: none does; nothing: none could be played, so nobody
# knows; independent: there is no dependence by assumption
Verdict = Literal["alone", "learnt", "noise", "nothing", "independent"]


def advice(best: Prediction, found: Mapping[str, Prediction], verdict: Verdict) -> str:
    """What to do, in a sentence or two."""
    singles = f"expect them to be off by {best.tvd[1]:.3f} in total variation."
    if verdict == "alone":
        return f"Use {best.name}: there is one attribute, so only its own distribution matters."
    if verdict == "nothing":
        reasons = "; ".join(f"{p.name}: {p.reason}" for p in found.values() if not p.tvd)
        why = f" ({reasons})" if reasons else ""
        return (
            f"Use {best.name} and read one-way figures only: {singles} Whether dependence between attributes can be learnt is "
            f"not known, as no method that asks pairs could be played{why}."
        )
    if verdict == "independent":
        return f"Use {best.name}: attributes are assumed independent, so one-way figures are all there is; {singles}"
    if verdict == "noise":
        unused = " The prior would not help: where pairs are not learnt, nothing could tell whether it is right."
        given = any(p.without_prior is not None for p in found.values())
        return (
            f"Use {best.name} and read one-way figures only: {singles} Dependence between attributes cannot be learnt here."
            f"{unused if given else ''}"
        )
    baseline = found[BASELINE].tvd[2] if found[BASELINE].tvd else None
    kept = "" if baseline is None else f", against {baseline:.3f} without asking pairs"
    return f"Use {best.name}: pairs can be learnt, with an expected two-way error of {best.tvd[2]:.3f}{kept}.{_helped(best)}"


def _helped(best: Prediction) -> str:
    """What a public table brings, if one was given."""
    if best.without_prior is None or 2 not in best.without_prior:
        return ""
    alone = best.without_prior[2]
    if best.tvd[2] > LITTLE * alone:
        return f" The prior brings little: the error without it would be {alone:.3f}."
    return (
        f" Without the prior the error would be {alone:.3f}, so the prior is worth having if its people are like the participants; "
        "the more they differ, the less it brings."
    )


def warnings(
    schema: Schema,
    participants: int,
    best: Prediction,
    found: Mapping[str, Prediction],
    verdict: Verdict,
    needed: Mapping[str, float | None],
) -> tuple[str, ...]:
    """What a planner has to know before deciding, a sentence each without its full stop."""
    out = []
    if verdict == "noise":
        out.append(f"pairs would be pure noise; {_remedy(needed)}")
    if best.tvd[1] > ROUGH:
        out.append(
            f"even the distribution of a single attribute would be off by {best.tvd[1]:.2f} in total variation (0 is exact, 1 is "
            f"nothing in common); {_widest(schema)}"
        )
    out += [
        f"in {1 - p.prior_used:.0%} of the played campaigns {p.name} found too little dependence to ask pairs, or could not tell "
        "that the prior is right, and made no use of it: expect either that or the gain, not the mean of both"
        for p in found.values()
        if p.prior_used is not None and 0 < p.prior_used < 1
    ]
    if participants > MOST_PARTICIPANTS:
        out.append(
            f"figures are those of {MOST_PARTICIPANTS:,} participants; more people only lower the errors"
        )
    if verdict != "nothing" and any(not p.tvd for p in found.values()):
        missing = ", ".join(f"{p.name} ({p.reason})" for p in found.values() if not p.tvd)
        out.append(f"no figures for {missing}")
    if verdict == "learnt" and best.tvd[2] > HINTS:
        out.append(
            f"two-way figures would be off by {best.tvd[2]:.2f} in the mean; take them as hints, not as results"
        )
    return tuple(out)


def _remedy(needed: Mapping[str, float | None]) -> str:
    """What would let pairs be learnt; fewer or coarser attributes always help, the rest only where it was found."""
    ways = []
    if needed["participants"] is not None:
        ways.append(f"about {needed['participants']:,.0f} participants at this epsilon")
    if needed["epsilon"] is not None:
        ways.append(f"an epsilon of about {needed['epsilon']:g} with these participants")
    if ways:
        return f"{' or '.join(ways)} would change that, and so would fewer or coarser attributes"
    return (
        f"neither {MOST_PARTICIPANTS:,} participants nor an epsilon of {MOST_EPSILON:g} changes that; only fewer or coarser "
        "attributes can"
    )


def _widest(schema: Schema) -> str:
    """Where to begin: the attribute with the most values."""
    widest = max(schema, key=lambda attribute: attribute.cardinality)
    fewer = ", or ask fewer attributes" if len(schema) > 1 else ""
    return f"{widest.name} has {widest.cardinality:,} values; give it fewer or coarser ones{fewer}"
