"""Applies a remedy in this process, at the moment that the line of code would run."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from .recorder import Record


def _patch_all():
    # type: () -> None
    from gevent import monkey

    monkey.patch_all()


def _patch_select():
    # type: () -> None
    from gevent import monkey

    monkey.patch_select()


def _extract():
    # type: () -> None
    """Undo each injection of pyOpenSSL, in whatever copy of urllib3."""
    for name in [name for name in sys.modules if "pyopenssl" in name.rpartition(".")[2].lower()]:
        extract = getattr(sys.modules[name], "extract_from_urllib3", None)
        if extract is not None:
            extract()


def _extract_truststore():
    # type: () -> None
    extract = getattr(sys.modules.get("truststore"), "extract_from_ssl", None)
    if extract is not None:
        extract()


def _unblock_pools():
    # type: () -> None
    """Pools that open another connection instead of waiting for the one that they have."""
    for name in [name for name in sys.modules if name.endswith(".connectionpool")]:
        pool = getattr(sys.modules[name], "HTTPConnectionPool", None)
        if pool is None:
            continue
        pool.__init__ = _unblocked(pool.__init__)


def _unblocked(begin):
    # type: (Any) -> Any
    def init(self, *args, **kwargs):
        # type: (Any, *Any, **Any) -> None
        begin(self, *args, **kwargs)
        self.block = False

    return init


def _raise_descriptors():
    # type: () -> None
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _more_resolver_threads():
    # type: () -> None
    import gevent

    gevent.get_hub().threadpool.maxsize = 200


# In front of sitecustomize; where the application begins; when it has set
# itself up and is about to fetch.
EARLIEST = {"patch-before-everything": _patch_all}  # type: Dict[str, Callable[[], None]]
FIRST = {"patch-all-first": _patch_all}  # type: Dict[str, Callable[[], None]]
BEFORE_FETCHING = {
    "patch-select": _patch_select,
    "extract-pyopenssl": _extract,
    "extract-truststore": _extract_truststore,
    "raise-descriptors": _raise_descriptors,
    "more-resolver-threads": _more_resolver_threads,
    "unblock-pool": _unblock_pools,
}  # type: Dict[str, Callable[[], None]]


def refuse_calls(wanted, record):
    # type: (Any, Record) -> None
    """The remedies that leave a call out: the function does nothing in this process."""
    targets = {
        "no-injection": ("inject_into_urllib3",),
        "no-truststore": ("inject_into_ssl",),
        "no-gevent-openssl": ("monkey_patch",),
    }
    names = [name for code in wanted for name in targets.get(code, ())]
    if not names:
        return
    record.disarmed = tuple(names)


def apply(wanted, table):
    # type: (Any, Dict[str, Callable[[], None]]) -> None
    """Carry out those of ``wanted`` that ``table`` has."""
    for code in wanted:
        if code in table:
            table[code]()
