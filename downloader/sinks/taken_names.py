"""Give files of shards and indexes names that files of others may have; see --existing."""

from __future__ import annotations

from collections.abc import Callable

from downloader.errors import DestinationError
from downloader.files.directory import Entry

__all__ = ["NameTaken", "give_name"]


class NameTaken(DestinationError):
    """A file of somebody else has a name that is needed, and may not be replaced.

    ``by_job``: it is one of another job of this program, whatever --existing says.
    """

    def __init__(self, root: str, name: str, *, by_job: bool = False) -> None:
        which = "of another job that stores there, too" if by_job else "which is not of this job"
        why = "" if by_job else " (--existing)"
        remedy = "give this job another -o and --journal, or move it away" if by_job else "move it away"
        super().__init__(
            f"{root} has {name}, {which}, and stays{why}; {remedy}, and run the same command again"
        )


def give_name(
    path: Entry, target: Entry, root: str, existing: str, is_ours: Callable[[Entry], bool]
) -> bool:
    """Give the complete file ``path`` the name ``target``; return whether that replaced a file of others.

    ``root``: where ``target`` is, for the message; ``is_ours``: tells whether a file that has the name is
    of this job. It is asked only then: most names are free. Raises NameTaken, OSError.
    """
    try:
        path.move_new(target)
        return False
    except FileExistsError:
        pass
    ours = is_ours(target)
    if not ours and existing != "replace":
        raise NameTaken(root, target.leaf)
    path.move(target)
    return not ours
