"""Colours of heat maps: frequencies from dark to bright, half-widths of intervals from pale to dark."""

from __future__ import annotations

# Viridis (Smith, van der Walt, Firing, 2015; public domain) at 16 even steps, and a ramp of one hue for uncertainty.
# fmt: off
VIRIDIS = [
    "#440154", "#481a6c", "#472f7d", "#414487", "#39568c", "#31688e", "#2a788e", "#23888e",
    "#1f988b", "#22a884", "#35b779", "#54c568", "#7ad151", "#a5db36", "#d2e21b", "#fde725",
]
AMBER = [
    "#fff6e5", "#ffe9c4", "#fedaa0", "#fcc87a", "#f7b355", "#ec9c39", "#db8425", "#c46c18", "#a85610", "#8a430b", "#6c3208",
]
# fmt: on
LEVELS = 33


def ramp(stops: list[str], position: float) -> str:
    """The colour at a position from 0 to 1, one of 33 levels."""
    level = round(min(max(position, 0.0), 1.0) * (LEVELS - 1)) / (LEVELS - 1)
    place = level * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    first, second = _channels(stops[low]), _channels(stops[low + 1])
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(first, second, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def reads_dark(colour: str) -> bool:
    """Whether black stands out more on this colour than white; either way the contrast is at least 4.5 to 1."""
    return luminance(colour) > 0.1791  # where (L + 0.05) / 0.05 = 1.05 / (L + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of a colour such as #25313c (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
