"""Draw the chart: files per second of every client in the main cell, as one SVG.

It is readable on white and on dark pages: the background is transparent, the text is a grey that stands out
on both, and lighter where the reader's system prefers dark colours.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element

import pygal
from pygal.style import Style

from benchmarks.cells import Cell
from benchmarks.results import Results
from benchmarks.tables import median_rate

__all__ = ["draw"]

_OURS, _THEIRS, _LETTERS = "#0f8a6d", "#5b7fc7", "#757575"
_ON_DARK = """inline:
@media (prefers-color-scheme: dark) { text { fill: #b8b8b8 !important; } }
"""


def draw(results: Results, cell: Cell, path: Path) -> bool:
    """Write the chart of ``cell``; return False when there is nothing to draw."""
    found = [(name, rate) for name in cell.clients if (rate := median_rate(results, cell.name, name))]
    if not found:
        return False
    found.sort(key=lambda one: one[1])
    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground=_LETTERS,
        foreground_strong=_LETTERS,
        foreground_subtle="#9a9a9a55",
        colors=(_OURS,),
        value_colors=(_LETTERS,),
        font_family="system-ui, sans-serif",
        title_font_size=16,
        label_font_size=13,
        major_label_font_size=13,
        value_font_size=13,
        opacity="1",
    )
    bars = pygal.HorizontalBar(
        style=style,
        css=["file://style.css", "file://graph.css", _ON_DARK],
        js=[],  # pygal's tooltips would load a script from its site
        show_legend=False,
        width=860,
        height=60 + 28 * len(found),
        margin=12,
        spacing=6,
        title=f"files per second: {cell.title}",
        x_labels=[f"{name}   {rate:,.0f}" for name, rate in found],
        show_x_labels=False,  # of the horizontal axis: the figures stand beside the names
        show_x_guides=False,
        show_y_guides=False,
        disable_xml_declaration=True,
    )
    bars.uuid = "speed"  # the same file for the same figures
    bars.add_xml_filter(_plain)
    bars.add(
        "files/s",
        [
            {"value": rate, "color": _OURS if name.startswith("downloader") else _THEIRS}
            for name, rate in found
        ],
    )
    path.write_text(bars.render(is_unicode=True) + "\n")
    return True


def _plain(tree: Element) -> Element:
    """Remove the script for tooltips and the comment with a date."""
    for parent in list(tree.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] == "script":
                parent.remove(child)
    return tree
