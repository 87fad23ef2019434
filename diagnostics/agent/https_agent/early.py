"""Execute the remedies that are a ``.pth`` file of their own, in a process of a command."""

from . import life, remedies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


def carry_out(arguments):
    # type: (Dict[str, Any]) -> bool
    """Execute the remedy that precedes the ``.pth`` file that ``site`` is about to read.

    Return True when there is nothing more to wait for: it was executed, or there are no instructions.
    """
    spec = life.read_spec()
    for remedy in spec["remedies"] if spec else ():
        if remedies.precedes(remedy, arguments):
            remedies.run_early(remedy)
            return True
    return spec is None
