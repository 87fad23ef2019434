"""Define the style of the page: for light and dark screens from 320 pixels on, and for paper."""

from __future__ import annotations

__all__ = ["STYLE"]

_LIGHT = """
  --paper: #ffffff; --ink: #1f2328; --quiet: #59636e; --rule: #d1d9e0; --panel: #f6f8fa; --mark: #fff3d1;
  --bad: #b3261e; --bad-other: #d1453b; --good: #1a7f37; --server: #0969da; --open: #8c959f;
  --on-bad: #ffffff;
"""
_DARK = """
  --paper: #0d1117; --ink: #e6edf3; --quiet: #9aa4af; --rule: #30363d; --panel: #161b22; --mark: #3a2f10;
  --bad: #ff8078; --bad-other: #e5534b; --good: #3fb950; --server: #58a6ff; --open: #7d8590;
  --on-bad: #0d1117;
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
body {{
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
  -webkit-text-size-adjust: 100%;
}}
main {{ max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }}
h1 {{ font-size: 1.4rem; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.15rem; margin: 2.25rem 0 .75rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--rule); }}
h3 {{ font-size: 1rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }}
p, ul, ol, dl {{ margin: .5rem 0; }}
li, p, dd {{ overflow-wrap: anywhere; }}
code, .number {{
  font-family: ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .875em; overflow-wrap: anywhere;
}}
.quiet {{ color: var(--quiet); font-size: .9rem; }}
.badge {{ display: inline-block; padding: 0 .5rem; border-radius: .3rem; color: var(--paper);
  background: var(--bad); }}
.badge.concurrent {{ background: var(--good); }}
article {{ margin: 1rem 0 1.5rem; }}
article ul {{ padding-left: 1.25rem; }}
.stack {{ padding-left: 2rem; font-size: .9rem; color: var(--quiet); }}

.code {{ margin: .75rem 0; padding: .5rem 0; background: var(--panel); border: 1px solid var(--rule);
  border-radius: .4rem; }}
.line {{ display: flex; padding: 0 .75rem 0 0; }}
.line.here {{ background: var(--mark); font-weight: 600; }}
.line .number {{ flex: 0 0 4.5rem; padding-right: .75rem; text-align: right; color: var(--quiet);
  user-select: none; }}
.line code {{ white-space: pre-wrap; tab-size: 4; min-width: 0; }}

.timeline {{ width: 100%; table-layout: fixed; border-collapse: collapse; font-size: .85rem;
  font-variant-numeric: tabular-nums; }}
.timeline th, .timeline td {{ padding: 1px 0; text-align: right; font-weight: 400; color: var(--quiet);
  vertical-align: middle; overflow-wrap: normal; }}
.timeline thead th {{ padding-bottom: .35rem; }}
.timeline thead th:nth-child(2) {{ text-align: left; padding-left: .6rem; }}
.timeline th:first-child {{ width: 3.75rem; }}
.timeline th:last-child {{ width: 4rem; }}
.timeline .track {{ padding: 1px .6rem; }}
.timeline .hub th {{ font-weight: 600; color: var(--ink); }}
.timeline .hub td {{ padding-bottom: .4rem; }}
svg {{ display: block; overflow: visible; }}
svg text {{ fill: var(--quiet); font-size: 12px; }}
.hub svg text {{ fill: var(--on-bad); font-weight: 600; }}
.room {{ fill: var(--panel); stroke: var(--rule); }}
.open {{ fill: var(--open); }}
.server {{ fill: var(--server); }}
.held, .before {{ fill: var(--bad); }}
.held.other {{ fill: var(--bad-other); }}
.after {{ fill: var(--good); }}
.timeline .failed {{ color: var(--bad); }}
.legend {{ list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem;
  color: var(--quiet); font-size: .85rem; }}
.legend li {{ display: flex; align-items: center; gap: .5rem; }}
.legend svg {{ flex: none; }}

.remedy {{ margin: 1rem 0 1.25rem; }}
.remedy .whole {{ display: block; margin: .25rem 0; padding: .25rem .5rem; background: var(--panel);
  border-radius: .3rem; white-space: pre-wrap; }}
.remedy .place {{ margin: .15rem 0 0; }}
.bar {{ display: grid; grid-template-columns: minmax(0, 3fr) minmax(4.5rem, 2fr); align-items: center;
  gap: .75rem; margin: .35rem 0; }}
.bar .seconds {{ font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }}
.bar .seconds:only-child {{ grid-column: 1 / -1; }}

dl {{ display: grid; grid-template-columns: minmax(8rem, 14rem) minmax(0, 1fr); gap: .35rem 1rem;
  font-size: .9rem; }}
dt {{ color: var(--quiet); }}
dd {{ margin: 0; }}
@media (max-width: 30rem) {{
  dl {{ grid-template-columns: minmax(0, 1fr); gap: 0; }}
  dd {{ margin-bottom: .5rem; }}
  .line .number {{ flex-basis: 3.5rem; padding-right: .5rem; }}
}}
@media print {{
  :root {{ color-scheme: light; {_LIGHT} }}
  * {{ -webkit-print-color-adjust: exact; print-color-adjust: exact; }}
  body {{ font-size: 11pt; }}
  main {{ max-width: none; padding: 0; }}
  h2, h3 {{ break-after: avoid; }}
  article, .remedy, .code, .timeline tr {{ break-inside: avoid; }}
}}
"""
