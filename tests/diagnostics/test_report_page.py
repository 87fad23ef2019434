"""The page of a check in a real browser, from a telephone's width on, light, dark, and on paper."""

from __future__ import annotations

import re
import shutil

import pytest
from report_parts import HOSTILE, NOW, outcome

from diagnostics.reports.page import page

BROWSERS = (
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "google-chrome",
    "google-chrome-stable",
)
# The lightness, between 0 and 1, of a colour as the browser computes it.
LIGHTNESS = """
    name => {
        const [r, g, b] = getComputedStyle(document.body)[name].match(/[0-9.]+/g).map(each => {
            const share = each / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }
"""
# The elements that stick out of the window on either side.
OUTSIDE = """
    () => [...document.querySelectorAll('body *')].filter(each => {
        const box = each.getBoundingClientRect();
        return box.width && (box.right > innerWidth + 1 || box.left < -1);
    }).map(each => each.outerHTML.slice(0, 200))
"""
# By bar of the timeline, where it is in its track, from 0 to 1.
BARS = """
    kind => [...document.querySelectorAll(`.timeline tbody tr:not(.hub) rect.${kind}`)].map(each => {
        const box = each.getBoundingClientRect(), track = each.ownerSVGElement.getBoundingClientRect();
        return [(box.left - track.left) / track.width, (box.right - track.left) / track.width, box.height];
    })
"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: install the extra `test-browser` of this project"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(
            f"no browser: none of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium)"
        )
    with playwright.sync_playwright() as driver:
        try:
            started = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except playwright.Error as error:  # Ubuntu has a script of that name that only tells how to get it
            pytest.skip(f"no browser: {found} does not start: {error.message.splitlines()[0]}")
        yield started
        started.close()


@pytest.mark.parametrize("text", ["", HOSTILE, "x" * 500], ids=["plain", "hostile", "long"])
def test_page_in_a_browser(browser, tmp_path, text):
    path = tmp_path / "page.html"
    path.write_bytes(page(outcome(text), NOW, fixed=True))
    said, asked, light = [], [], {}
    for scheme, width in (("light", 360), ("light", 800), ("dark", 360), ("dark", 1400)):
        tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        assert tab.evaluate(OUTSIDE) == []
        assert tab.title().startswith("HTTPS is serialized: 10 × 0.2 s took 2.00 s")
        assert tab.locator("h1").is_visible()
        # As drawn, not as written: each waits for its own tenth, on any screen.
        bars = tab.evaluate(BARS, "server")
        assert len(bars) == 10
        for number, (left, right, height) in enumerate(bars):
            assert (left, right) == pytest.approx((number / 10, number / 10 + 0.095), abs=0.01)
            assert height > 5
        light[scheme] = tab.evaluate(LIGHTNESS, "backgroundColor"), tab.evaluate(LIGHTNESS, "color")
        tab.close()
    assert said == []
    assert set(asked) == {path.as_uri()}
    for paper, ink in light.values():
        assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) > 7  # WCAG's AAA
    assert light["light"][0] > 0.9 > 0.1 > light["dark"][0]


def test_page_on_paper(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(page(outcome(), NOW, fixed=True))
    tab = browser.new_page(color_scheme="dark")
    tab.goto(path.as_uri())
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate(LIGHTNESS, "backgroundColor") > 0.9
    printed = tab.pdf(format="A4")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4
    tab.close()
