"""Execute the remedies that are a ``.pth`` file of their own, in a process of a command."""

from . import life, remedies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


def carry_out(function, arguments):
    # type: (str, Dict[str, Any]) -> bool
    """Execute the remedy that has been read as a ``.pth`` file where ``site`` calls ``function``.

    Return True when there is nothing more to wait for: it was executed, or there are no instructions.
    """
    spec = life.read_spec()
    for remedy in spec["remedies"] if spec else ():
        if remedies.is_due(remedy, function, arguments):
            remedies.run_early(remedy)
            return True
    return spec is None
