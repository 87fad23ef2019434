"""Make outcomes of checks for the tests of their reports, with text that a hostile program may have."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from diagnostics.model import (
    Cause,
    Diagnosis,
    Excerpt,
    Hold,
    Question,
    Remedy,
    RequestSpan,
    Target,
    Timeline,
)
from diagnostics.reports.outcome import Outcome

# Ends what it may be in: an element, a style, an attribute, a comment, a CDATA section, a line. NUL and ESC
# are forbidden in XML, the override shows what follows backwards.
HOSTILE = (
    "</code></title></style>\"'><script>document.title='taken'</script><img src=http://x.invalid/ onload=a>"
    "<!-- ]]> &amp; &#x3c; \x00\x1b[31m \u202e \udcff %0A::error::no\r\n::error::fake ##[error]fake"
)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)


def outcome(text: str = "", file: str = "proj.py", many: int = 10, **changed: Any) -> Outcome:
    """Return the outcome of a serialized check of ``many`` requests, with ``text`` wherever text may be."""
    line = f"fetch() {text}"
    where = f"{file}:4"
    cause = Cause(f"own-lock{text}", f"waits {text}", where, [f"seen {text}", line], f"because {text}")
    spans = [RequestSpan(n, 0.0, 0.2 * (n + 1), n == 3, [(0.2 * n, 0.2 * n + 0.19)]) for n in range(many)]
    holds = [Hold(0.2 * n, 0.2 * n + 0.2, n if n % 4 else None, where) for n in range(many)]
    remedies = [Remedy("patch", f"patch {text}", 0.22, "concurrent", line, f"the first line of {file}")]
    tried = [
        Remedy("again", f"again {text}", 2.0, "serialized", line, where, "still serialized"),
        Remedy("other", f"other {text}", None, "error", line, where, f"raised {text}"),
    ]
    facts = {
        "python": "3.11.2",
        "implementation": "cpython",
        "executable": f"/py {text}",
        "packages": {"gevent": f"26.9.0 {text}"},
        "patched": {"socket": True, "select": False},
        "patched_by": [f"{where} patch_all() {text}"],
        "pyopenssl_injected": False,
        "ssl_imported_before_patch_by": None,
    }
    found = Diagnosis(
        verdict="serialized",
        requests=many,
        delay_s=0.2,
        wall_s=0.2 * many,
        concurrency=1.0,
        socket_class=f"gevent.ssl.SSLSocket {text}",
        causes=[cause],
        remedies=remedies,
        tried=tried,
        facts=facts,
        held=[{"seconds": 2.0, "cpu_s": 0.1, "frames": [f"{where} {text}", f"{text}:1 {text}"]}],
        timeline=Timeline(many, 0.2, 0.2 * many, spans, holds),
        excerpts=[Excerpt(where, str(Path(file).absolute()), 4, 3, ["import x", line, "    y"], True)],
    )
    question = Question(Target(app=f"proj{text}"))
    given = {"question": question, "found": found, "exit_code": 1, "seconds": 5.0, **changed}
    return Outcome(**given)
