"""Make the elements of a page; whatever text they get is escaped, and its invisible characters shown."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from diagnostics.reports.outcome import shown

__all__ = ["element", "inside"]


def element(tag: str, text: str = "", /, **attributes: str) -> Element:
    """Return an element with ``text``. ``class_`` is its class, and ``aria_label`` its ``aria-label``."""
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    made = Element(tag, {names[key]: shown(value) for key, value in attributes.items()})
    made.text = shown(text)
    return made


def inside(parent: Element, tag: str, text: str = "", /, **attributes: str) -> Element:
    """Add an element to ``parent``, and return it."""
    made = element(tag, text, **attributes)
    parent.append(made)
    return made
