"""patch_all() never returns: what gevent looks at loads the module that calls it, and waits for its end.

So do the settings of Django, where the module of settings patches.
"""


class LazySettings:
    @property
    def __class__(self):
        import patching_that_waits

        return type(patching_that_waits)


if __name__ == "__main__":
    settings = LazySettings()
    import patching_that_waits  # noqa: F401
else:
    from gevent import monkey

    monkey.patch_all()

PACKAGES = ["gevent"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
EXPECT = {
    "verdict": "none",
    "error": "*patch_all() at patching_that_waits.py:21 has not returned and is at patching_that_waits.py:10*",
}
COMMAND = ["python", "patching_that_waits.py"]
