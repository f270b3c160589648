"""What cannot be taken back, in words: what is lost, and what the button does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Danger:
    """A step that asks twice."""

    title: str
    lost: tuple[str, ...]
    button: str


DANGERS = {
    "close-round": Danger(
        "Close the round?",
        (
            "Nobody can answer this round any more, and it cannot be opened again.",
            "Answers on their way that have not been acknowledged are not counted.",
            "Its tally goes to the method, which may open the next round at once.",
        ),
        "Close it",
    ),
    "finalise": Danger(
        "Make the release?",
        (
            "The model is fitted to the tallies and a release is made. It is kept as it is: it cannot be made a second time.",
            "The campaign ends. Nobody sees the release before you publish it.",
        ),
        "Make the release",
    ),
    "publish": Danger(
        "Publish the release?",
        (
            "Anybody with the address can read and download it, ask it questions, and keep a copy.",
            "You can hide it later. Copies that others have made stay with them.",
        ),
        "Publish it",
    ),
    "unpublish": Danger(
        "Hide the release?",
        (
            "Its address answers as if there had never been a release. Links to it break.",
            "Copies that others have made stay with them.",
        ),
        "Hide it",
    ),
}

SAID = {
    "open": "The campaign is open and takes answers.",
    "reopen": "The closing is taken back; the round takes answers again.",
    "close-round": "The round is closed.",
    "finalising": "The release is being made.",
    "publishing": "The release is being published.",
    "unpublish": "The release is hidden.",
    "created": "The campaign is made.",
}
