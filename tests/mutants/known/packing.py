"""Bugs in the diagnostics where they are installed or copied: a wheel, a zip file, one module."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PACKED = "tests/diagnostics/test_packed.py::"
PROGRAMS = "tests/diagnostics/test_packed_programs.py::"
COPY = "tests/diagnostics/test_inspection_file.py::"

KNOWN = (
    Mutant(
        "the program in a folder of packages is a package",
        "in an environment that the wheel is installed in, causes are at lines of no file of the user's",
        "kind_of_file",
        "_is_at_work(path)",
        "False",
        (f"{COPY}test_work_inside_of_a_package_is_the_users",),
    ),
    Mutant(
        "the start code of a packer is the user's",
        "the cause of a program of pex or shiv is in the code of these, where no gevent can be imported",
        "kind_of_file",
        "is_start_code(path)",
        "False",
        (f"{PROGRAMS}test_cause_and_remedy_are_in_the_packed_package",),
    ),
    Mutant(
        "a packed program is started with gevent from outside of the pack",
        "a remedy that is measured fails wherever gevent is not installed beside the packed program",
        "starts",
        "case.packed",
        "False",
        (f"{PROGRAMS}test_gevent_from_outside_of_the_pack_is_no_remedy",),
    ),
    Mutant(
        "places inside of an installed package are named from another folder",
        "a scenario of the wheel that is as in the checkout is called different",
        "_from",
        "path.removeprefix(work + os.sep) if '-packages' + os.sep in work else path",
        "path",
        (f"{COPY}test_work_inside_of_a_package_is_the_users",),
    ),
    Mutant(
        "the one module needs another of ours",
        "a copied hook ends a web server with an ImportError",
        "_files_that_name",
        "found = []",
        "import diagnostics\nfound = []",
        (f"{COPY}test_a_copy_needs_the_standard_library_alone",),
    ),
    Mutant(
        "looking at a module by its attributes",
        "a hook imports what loads itself lazily, or ends a web server with an error of such a module",
        "contents",
        "object.__getattribute__(sys.modules.get(name), '__dict__')",
        "sys.modules.get(name).__dict__",
        (f"{COPY}test_what_loads_itself_or_raises_is_left_alone",),
    ),
    Mutant(
        "the zip file takes packages of the environment for its own",
        "a check ends with an internal error where another version of click or h11 is installed",
        "guard",
        "sys.path.insert(0, ROOT)",
        "sys.path.append(ROOT)",
        (f"{PACKED}test_zip_file_of_a_user_has_what_shadows_it_on_the_path",),
        seconds=90,
    ),
    Mutant(
        "the agent of a zip file cannot be read by others",
        "as root, a worker that drops its privileges reports nothing",
        "_copy",
        "target.chmod(0o755)",
        "target.chmod(0o700)",
        (f"{COPY}test_the_agent_of_a_zip_file_can_be_read_by_every_user",),
    ),
    Mutant(
        "a record of another process is taken as it is",
        "a process under check that writes nonsense ends the check with an internal error",
        "_as",
        "kind is float and type(value) in (int, float) and math.isfinite(value)",
        "kind is float",
        ("tests/unit/test_diagnostics_records.py::test_what_does_not_fit_is_refused",),
    ),
)
