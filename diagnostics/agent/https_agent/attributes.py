"""Return what an object has for itself: in its dictionary, and in the slots of its classes."""

from types import MemberDescriptorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


def slots(kind):
    # type: (type) -> Dict[str, Any]
    """Return the descriptors of the slots of ``kind`` and of the classes above it, by attribute."""
    found = {}  # type: Dict[str, Any]
    for cls in reversed(kind.__mro__):
        if "__slots__" in vars(cls):
            found.update(
                (name, value)
                for name, value in list(vars(cls).items())
                if type(value) is MemberDescriptorType
            )
    return found


def of(own):
    # type: (Any) -> Dict[str, Any]
    """Return the attributes of the object ``own``, also those in slots; no code of the application's runs.

    It is a new dictionary.
    """
    found = dict(getattr(own, "__dict__", {}))  # type: Dict[str, Any]
    for name, slot in slots(type(own)).items():
        try:
            found[name] = slot.__get__(own, type(own))
        except AttributeError:
            pass  # nothing is in the slot
    return found
