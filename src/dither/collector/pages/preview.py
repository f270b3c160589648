"""The picture that other sites show beside a link: bars or a heat map of a view, without text.

Drawn in pixels, because services that show previews read no SVG. The preview's title and
description are the page's own texts.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from dither.collector.exploring import Cell, Explored
from dither.display import VIRIDIS, ramp

# As services that show previews ask for it.
WIDTH, HEIGHT = 1200, 630
_EDGE, _GAP = 70, 14
_PAPER, _LINE, _BAR, _REACH = "#ffffff", "#d9dfe5", "#7fb8d8", "#00598c"
_MAX_BARS = 12
_Pixels = npt.NDArray[np.uint8]


def preview(explored: Explored) -> bytes:
    """A PNG of a view's first chart."""
    pixels = np.empty((HEIGHT, WIDTH, 3), dtype=np.uint8)
    pixels[:] = _colour(_PAPER)
    cells = _first_cells(explored)
    panel = explored.panels[0] if explored.panels else None
    if panel is not None and len(panel.axes) == 2:
        _draw_heat(pixels, cells, len(panel.axes[1].groups))
    elif cells:
        _draw_bars(pixels, cells[:_MAX_BARS])
    return _png(pixels)


def _first_cells(explored: Explored) -> list[Cell]:
    if explored.contrasts:
        cells = [contrast.first for contrast in explored.contrasts]
    elif explored.histograms:
        cells = list(explored.histograms[0].cells)
    elif explored.panels:
        return list(explored.panels[0].cells)
    else:
        cells = []
    return [cell for cell in cells if cell.estimate == cell.estimate]


def _draw_heat(pixels: _Pixels, cells: list[Cell], columns: int) -> None:
    values = np.nan_to_num(np.array([cell.estimate for cell in cells])).reshape(-1, columns)
    top = float(values.max()) or 1.0
    rows = len(values)
    width, height = (WIDTH - 2 * _EDGE) / columns, (HEIGHT - 2 * _EDGE) / rows
    for i in range(rows):
        for j in range(columns):
            y, x = int(_EDGE + i * height), int(_EDGE + j * width)
            colour = ramp(VIRIDIS, (float(values[i, j]) / top) ** 0.5)
            pixels[y : y + int(height) - 3, x : x + int(width) - 3] = _colour(colour)


def _draw_bars(pixels: _Pixels, cells: list[Cell]) -> None:
    known = [cell for cell in cells if cell.estimate == cell.estimate]
    ends = [value for cell in known for value in (cell.estimate, cell.high or 0.0)]
    top = max([1e-9, *ends])
    height = (HEIGHT - 2 * _EDGE) / max(1, len(known))
    reach = WIDTH - 2 * _EDGE

    def place(value: float) -> int:
        return _EDGE + round(reach * min(1.0, max(0.0, value / top)))

    pixels[_EDGE - _GAP : HEIGHT - _EDGE + _GAP, _EDGE - 3 : _EDGE] = _colour(_LINE)
    for i, cell in enumerate(known):
        y, below = round(_EDGE + i * height), round(_EDGE + (i + 1) * height) - _GAP
        pixels[y:below, _EDGE : place(cell.estimate)] = _colour(_BAR)
        if cell.low is not None and cell.high is not None:
            middle = (y + below) // 2
            pixels[middle - 3 : middle + 3, place(cell.low) : place(cell.high)] = _colour(_REACH)


def _colour(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def _png(pixels: _Pixels) -> bytes:
    """A PNG file of eight bits per channel (W3C, Portable Network Graphics)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    # Every row begins with the number of its filter, none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")
