"""List the extensions that content from outside must not have in a sample: readers execute it.

webdataset unpickles ``pickle`` and ``pyd``, and reads ``pth`` with torch.load, which older versions of
torch let unpickle; wids does so with ``pkl`` and ``pt``, too, torchdata with ``pickle``. ``npy`` and
``npz`` may have objects, which numpy before 1.16.3 unpickles. The others are what pickles, and models with
code in them, are also called: joblib, torch, dill and Python itself read them as such.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ARRAYS", "EXECUTED"]

ARRAYS: Final = frozenset({"npy", "npz"})
"""Those that only an old numpy unpickles, so that columns of a list may have them."""

EXECUTED: Final = frozenset(
    {
        "cloudpickle",
        "ckpt",
        "dill",
        "jbl",
        "joblib",
        "npy",
        "npz",
        "p",
        "pck",
        "pckl",
        "pcl",
        "pickle",
        "pkl",
        "pt",
        "pt2",
        "pth",
        "ptl",
        "pyc",
        "pyd",
        "pyo",
        "sav",
        "torch",
    }
)
"""Extensions in lower case whose content is executed, or unpickled, which is the same."""
