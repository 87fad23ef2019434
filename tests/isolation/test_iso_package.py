"""``import downloader`` has no side effects, and still provides its public names."""

from __future__ import annotations

from typing import Any


def test_importing_the_package_loads_nothing(run: Any) -> None:
    facts = run(
        """
before = set(sys.modules)
import downloader
tell(loaded=sorted({name.partition(".")[0] for name in set(sys.modules) - before}),
     inner=[name for name in sys.modules if name.startswith("downloader.")])
"""
    )
    assert not {"gevent", "ssl", "requests", "urllib3", "msgspec"} & set(facts["loaded"])
    assert facts["inner"] == []


def test_importing_patching_patches_nothing(run: Any) -> None:
    facts = run(
        """
finders = list(sys.meta_path)
from downloader.process import patching
tell(loaded=[n for n in ("gevent", "ssl", "requests", "urllib3", "OpenSSL") if n in sys.modules],
     same=finders == sys.meta_path)
"""
    )
    assert facts["loaded"] == []
    assert facts["same"]


def test_the_public_names(run: Any) -> None:
    facts = run(
        """
import downloader
from downloader import UnsafeProcess, __version__
from downloader._version import VERSION
import downloader.errors
try:
    downloader.nothing_of_that_name
except AttributeError as error:
    tell(error=str(error))
private = {"FAILURES", "ROW_FAULTS", "UNDECODABLE", "Blame", "FetchError", "failure_kind"}
public = set(downloader.errors.__all__) - private
tell(error_is=UnsafeProcess is downloader.errors.UnsafeProcess, version=__version__ == VERSION,
     listed=set(downloader.__all__) <= set(dir(downloader)),
     errors=public <= set(downloader.__all__),
     there=[n for n in sorted(public) if not hasattr(downloader, n)],
     sorted=downloader.__all__, ssl="ssl" in sys.modules)
"""
    )
    assert facts["error"] == "module 'downloader' has no attribute 'nothing_of_that_name'"
    assert facts["error_is"]
    assert facts["version"]
    assert facts["listed"]
    assert facts["errors"]
    assert facts["there"] == []
    assert {"Config", "Report", "download"} <= set(facts["sorted"])
    assert not facts["ssl"]
