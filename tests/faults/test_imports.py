"""Files whose names a server chose are never run as Python modules, wherever a command is started."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, command, environment
from servers import Server, ok

OPTIONAL = (
    "brotli brotlicffi chardet cryptography isal OpenSSL simplejson sitecustomize socks usercustomize"
)
OPTIONAL += " ipywidgets IPython uvloop wsaccel zstandard truststore diagnostics downloader"
NAMES = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), *OPTIONAL.split()}

# The scripts that pip makes of the entry points.
SCRIPT = "import sys\nfrom {package}.__main__ import main\nsys.exit(main())\n"


class Trap:
    """A server whose files are Python modules that record being run, and the commands of a user in the
    directory that has these files."""

    def __init__(self, folder: Path, names: set[str]) -> None:
        self.marker = folder / "ran"
        self.dest = folder / "dest"
        self.dest.mkdir()
        code = f"with open({str(self.marker)!r}, 'a') as marker: marker.write(__name__ + ' ')\n"
        self.bodies = {f"{name}.py": code.encode() for name in sorted(names)}
        self.scripts = folder / "bin"
        self.scripts.mkdir()
        for package in ("downloader", "diagnostics"):
            (self.scripts / package).write_text(SCRIPT.format(package=package))

    def put(self) -> None:
        """Put the files into the directory, as an earlier run would have left them."""
        for name, body in self.bodies.items():
            (self.dest / name).write_bytes(body)

    def run(self, *argv: object, code: int = 0, path: str | None = None) -> tuple[str, str]:
        """Run a command in the directory and check that none of its files ran. Return the output.

        ``path`` is PYTHONPATH where it must not be our own tree.
        """
        env = environment()
        done = subprocess.run(
            list(map(str, argv)),
            cwd=self.dest,
            env=env if path is None else {**env, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        ran = self.marker.read_text() if self.marker.exists() else ""
        assert (ran, done.returncode) == ("", code), done.stderr
        return done.stdout, done.stderr

    def script(self, name: str, *args: object) -> list[object]:
        """Return the command as it is installed."""
        return [sys.executable, self.scripts / name, *args]


def loaded_for_m(tmp_path: Path) -> set[str]:
    """Return what ``python -m`` imports before the module that it is told to run."""
    (tmp_path / "probe.py").write_text("import sys\nprint(*sys.modules)\n")
    argv = [sys.executable, "-m", "probe"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    """Return a trap with all names that can be imported."""
    return Trap(tmp_path, NAMES)


@pytest.fixture
def trap_for_m(tmp_path: Path) -> Trap:
    """Return a trap with all names but those that Python itself imports before our code (and our package's
    name)."""
    first = {"downloader", "diagnostics", "sitecustomize", "usercustomize", "nt", "_winapi", "winreg"}
    return Trap(tmp_path, NAMES - loaded_for_m(tmp_path) - first)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Run a server with the files of the test's trap."""
    name = "trap" if "trap" in request.fixturenames else "trap_for_m"
    bodies = request.getfixturevalue(name).bodies
    with Server(files={name: ok(body) for name, body in bodies.items()}) as running:
        yield running


@pytest.mark.parametrize("preflight", ["auto", "probe"])
def test_repeated_download_into_the_current_directory(trap: Trap, server: Server, preflight: str) -> None:
    argv = trap.script("downloader", server.url, "-o", ".", "--preflight", preflight)
    trap.run(*argv)
    assert {path.name for path in trap.dest.iterdir()} > set(trap.bodies)
    again = ("--restart", "--report", "../r.json", "--progress", "bar", "--lane", "requests", "-v")
    assert "python -m" not in trap.run(*argv, *again)[1]
    trap.run(*trap.script("downloader", "verify", "."))
    trap.run(*trap.script("downloader", "status", "."))


def test_download_into_the_current_directory_with_python_m(trap_for_m: Trap, server: Server) -> None:
    argv = command(server.url, "-o", ".", "--preflight", "probe")
    said = trap_for_m.run(*argv)[1]
    assert "`python -m` imports from the current directory, which is DEST" in said
    assert {path.name for path in trap_for_m.dest.iterdir()} > set(trap_for_m.bodies)
    trap_for_m.run(*argv, "--restart", "--json")


@pytest.mark.parametrize("path", [f"{ROOT}:", f".:{ROOT}", f"{{dest}}:{ROOT}"])
def test_download_where_pythonpath_names_the_current_directory(
    trap_for_m: Trap, server: Server, path: str
) -> None:
    trap_for_m.put()
    argv = trap_for_m.script("downloader", server.url, "-o", ".")
    trap_for_m.run(*argv, path=path.format(dest=trap_for_m.dest))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is there from 3.11 on")
def test_download_with_python_capital_p_and_m(trap: Trap, server: Server) -> None:
    trap.put()
    said = trap.run(sys.executable, "-P", "-m", "downloader", server.url, "-o", ".")[1]
    assert "python -m" not in said


def test_demo_in_a_directory_of_server_files(trap: Trap) -> None:
    trap.put()
    out, _ = trap.run(*trap.script("downloader", "demo", "--files", 50, "-o", "../demo"))
    assert "50 of 50 right" in out


@pytest.mark.parametrize(
    ("path", "preflight"),
    [
        ("", "probe"),
        pytest.param(":/nowhere", "auto", marks=pytest.mark.slow),  # as the first, with a suffix
        ("{dest}", "probe"),
        ("../dest:/nowhere", "auto"),
    ],
)
def test_program_with_the_destination_as_current_directory_calls_download(
    trap: Trap, server: Server, tmp_path: Path, path: str, preflight: str
) -> None:
    trap.put()
    program = tmp_path / "program.py"
    text = """
        import os
        os.environ["PYTHONPATH"] = {path!r}
        import downloader
        config = downloader.Config(source={url!r}, output={dest!r}, preflight={preflight!r})
        print(downloader.download(config).exit_code)
    """
    dest = str(trap.dest)
    told = {"path": path.format(dest=dest), "url": server.url, "dest": dest, "preflight": preflight}
    program.write_text(textwrap.dedent(text).format(**told))
    assert trap.run(sys.executable, program)[0] == "0\n"


@pytest.mark.parametrize("style", ["downloader", "requests"])
def test_diagnostics_in_a_directory_of_server_files(trap: Trap, style: str) -> None:
    trap.put()
    trap.run(*trap.script("diagnostics", "--style", style))


def test_diagnostics_with_python_m(trap_for_m: Trap) -> None:
    trap_for_m.put()
    trap_for_m.run(sys.executable, "-m", "diagnostics", "--style", "grequests")
    trap_for_m.run(sys.executable, "-m", "diagnostics", "scenarios", "--only", "stage_04", "--offline")


def test_serial_server_is_distinguished_from_a_serial_process_in_a_directory_of_server_files(
    trap: Trap,
) -> None:
    """The control is a process of its own."""
    trap.put()
    url = "https://127.0.0.1:1/"
    trap.run(*trap.script("diagnostics", "--style", "requests", "--url", url), code=4)


def test_interpreter_is_examined_in_a_directory_of_server_files(trap: Trap) -> None:
    trap.put()
    trap.run(*trap.script("diagnostics", "scenarios", "--list", "--python", sys.executable))
    trap.run(*trap.script("diagnostics", "scenarios", "--only", "nothing_of_the_name"), code=2)


@pytest.mark.parametrize("dest", ["../elsewhere", "."])
def test_source_checkout_as_current_directory(trap_for_m: Trap, server: Server, dest: str) -> None:
    """The state after `git clone`, with files of a server added."""
    trap_for_m.put()
    copy_packages(trap_for_m.dest)
    argv = command(server.url, "-o", dest, "--preflight", "probe", "--json")
    assert '"downloader":"copy"' in trap_for_m.run(*argv, path="")[0]


def test_pip_install_target_as_current_directory(trap_for_m: Trap, server: Server, tmp_path: Path) -> None:
    """There our requirements are beside our package, here as msgspec."""
    folder = trap_for_m.dest
    copy_packages(folder)
    (folder / "mass_downloader-1.0.dist-info").mkdir()
    (folder / "beside_us.py").write_text("")
    with (folder / "downloader" / "cli" / "main.py").open("a") as file:
        file.write("\nimport beside_us\n")
    trap_for_m.run(*command(server.url, "-o", "../elsewhere", "--preflight", "probe"), path="")


def copy_packages(folder: Path) -> None:
    """Copy our packages there; a copy that runs reports a version of its own."""
    for package in ("downloader", "diagnostics"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "downloader" / "_version.py").write_text('VERSION = "copy"\n')


# What a PEX, Bazel or buildout makes of the path.
BUNDLED = "import sys\nsys.path[:0] = {!r}\n"


@pytest.fixture
def bundled(tmp_path: Path) -> list[str]:
    """Return folders with our packages and what they need, and no other Python knows of them."""
    ours = tmp_path / "ours"
    ours.mkdir()
    copy_packages(ours)
    return [str(ours), sysconfig.get_path("purelib")]


@pytest.mark.parametrize("options", [["--store", "tar"], ["--preflight", "probe"]])
def test_program_that_makes_its_own_path(
    trap: Trap, server: Server, bundled: list[str], options: list[str]
) -> None:
    trap.put()
    script = trap.scripts / "bundled"
    script.write_text(BUNDLED.format(bundled) + "from downloader.__main__ import main\nsys.exit(main())\n")
    trap.run(bare(), script, server.url, "-o", "../out", *options, path="")


def test_diagnostics_in_a_program_that_makes_its_own_path(trap: Trap, bundled: list[str]) -> None:
    trap.put()
    script = trap.scripts / "bundled"
    script.write_text(BUNDLED.format(bundled) + "from diagnostics.__main__ import main\nsys.exit(main())\n")
    trap.run(bare(), script, path="")
    trap.run(bare(), script, "--style", "requests", path="")


def test_program_that_makes_its_own_path_calls_download(
    trap: Trap, server: Server, bundled: list[str]
) -> None:
    """DEST is on it, and a link to that; a module beside the script is for the script alone."""
    trap.put()
    link = trap.scripts.parent / "link"
    link.symlink_to(trap.dest)
    (trap.scripts / "gevent.py").write_bytes(trap.bodies["json.py"])
    script = trap.scripts / "bundled"
    script.write_text(
        BUNDLED.format(bundled)
        + "import os, downloader, downloader.api\n"
        + f"config = downloader.Config(source={server.url!r}, output={str(trap.dest)!r})\n"
        + f"sys.path[:0] = ['', {str(trap.dest)!r}, {str(link)!r}]\nos.chdir('/')\n"
        + "print(downloader.download(config).exit_code)\n"
    )
    assert trap.run(bare(), script, path="")[0] == "0\n"


def bare() -> str:
    """Return the Python of this one's virtual environment: it has none of our requirements."""
    return os.path.join(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")


PROGRAM = """
import sys
import downloader
{before}
try:
    downloader.download(downloader.Config(source="nothing.txt", output="d"))
except downloader.DownloaderError as error:
    print(type(error).__name__, error)
"""


def without_site(
    folder: Path, *argv: object, path: str, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python in ``folder`` with nothing on its path but its library and PYTHONPATH.

    There are ``app``, with our packages, and ``libs``, with the requirements. Without ``argv`` a program is
    run that calls download(), and does ``before`` first.
    """
    for name, target in (("app", ROOT), ("libs", Path(sysconfig.get_path("purelib")))):
        if not (folder / name).exists():
            (folder / name).symlink_to(target)
    (folder / "nothing.txt").touch()
    return subprocess.run(
        [sys.executable, "-S", *map(str, argv or ("-c", PROGRAM.format(before=before)))],
        cwd=folder,
        env={**environment(), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_requirements_on_a_relative_path(tmp_path: Path) -> None:
    """They were missing with a bare traceback, and download() said nothing of them."""
    advice = "nothing is imported from app, which PYTHONPATH names relatively: make its entries absolute\n"
    done = without_site(tmp_path, "-m", "downloader", "nothing.txt", "-o", "d", path="app:libs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"downloader: error: No module named 'click'; {advice}"
    called = without_site(tmp_path, path="app:libs")
    assert called.stdout.startswith("BootError the run's own process ended with status 1 ")
    assert called.stdout.endswith(advice)
    absolute = f"{tmp_path}/app:{tmp_path}/libs"
    done = without_site(tmp_path, "-m", "downloader", "nothing.txt", "-o", "d", path=absolute)
    assert "complete" in done.stdout, done.stderr


def test_requirements_in_a_zip_file(tmp_path: Path) -> None:
    """It was called a defect in the downloader."""
    with zipfile.ZipFile(tmp_path / "libs.zip", "w") as packed:
        for package in ("click", "msgspec"):
            folder = Path(sysconfig.get_path("purelib"))
            for file in (folder / package).rglob("*"):
                packed.write(file, file.relative_to(folder))
    path = f"{tmp_path}/app:{tmp_path}/libs.zip"
    done = without_site(tmp_path, "-m", "downloader", "nothing.txt", "-o", "d", path=path)
    assert done.returncode == 2
    advice = (
        "is a zip file, from which nothing compiled is imported: install the requirements into a directory"
    )
    assert done.stderr.startswith("downloader: error: No module named 'msgspec._core'; ")
    assert done.stderr.endswith(f"libs.zip {advice}\n")
    assert not (tmp_path / "d").exists()


def test_program_with_a_path_of_its_own_that_cannot_be_handed_on(tmp_path: Path) -> None:
    path = f"{tmp_path}/app:{tmp_path}/libs"
    long = "sys.path += ['/nowhere/' + 'x' * 100 + str(number) for number in range(30_000)]"
    called = without_site(tmp_path, path=path, before=long)
    assert called.stdout == (
        "BootError cannot start a process: Argument list too long; sys.path is handed on in its arguments\n"
    ), called.stderr
    called = without_site(tmp_path, path=path, before="del sys.modules['__main__']")
    assert called.stderr == ""
