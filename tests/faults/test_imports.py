"""Files whose names a server chose are never run as Python modules, wherever a command is started."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, command, environment
from servers import Server, ok

OPTIONAL = "brotli brotlicffi chardet cryptography isal OpenSSL simplejson sitecustomize socks usercustomize"
OPTIONAL += " ipywidgets IPython uvloop wsaccel zstandard truststore diagnostics downloader"
NAMES = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), *OPTIONAL.split()}

# What pip makes of the entry points.
SCRIPT = "import sys\nfrom {package}.__main__ import main\nsys.exit(main())\n"


class Trap:
    """A server whose files are Python modules that write down that they ran, and the commands of a user
    who stands in the directory with these files."""

    def __init__(self, folder: Path, names: set[str]) -> None:
        self.marker = folder / "ran"
        self.dest = folder / "dest"
        self.dest.mkdir()
        code = f"import sys\nwith open({str(self.marker)!r}, 'a') as m: m.write(__name__ + ' ' + sys.argv[0] + '\\n')\n"
        self.bodies = {f"{name}.py": code.encode() for name in sorted(names)}
        self.scripts = folder / "bin"
        self.scripts.mkdir()
        for package in ("downloader", "diagnostics"):
            (self.scripts / package).write_text(SCRIPT.format(package=package))

    def put(self) -> None:
        """Have the files in the directory, as an earlier run left them."""
        for name, body in self.bodies.items():
            (self.dest / name).write_bytes(body)

    def run(self, *argv: object, code: int = 0, **env: str) -> str:
        """Run a command in the directory; nothing of that may have run. Returns its output."""
        done = subprocess.run(
            list(map(str, argv)),
            cwd=self.dest,
            env=environment(**env),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        ran = self.marker.read_text() if self.marker.exists() else ""
        assert (ran, done.returncode) == ("", code), done.stderr
        return done.stdout

    def script(self, name: str, *args: object) -> list[object]:
        """The command as it is installed."""
        return [sys.executable, self.scripts / name, *args]


def loaded_for_m(tmp_path: Path) -> set[str]:
    """What ``python -m`` has imported before it comes to the module it is told to run."""
    (tmp_path / "probe.py").write_text("import sys\nprint(*sys.modules)\n")
    argv = [sys.executable, "-m", "probe"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    """All names that can be imported."""
    return Trap(tmp_path, NAMES)


@pytest.fixture
def trap_for_m(tmp_path: Path) -> Trap:
    """All names but those that ``python -m`` imports before us (and us, whom it takes from there)."""
    return Trap(tmp_path, NAMES - loaded_for_m(tmp_path) - {"downloader", "diagnostics"})


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with the files of the test's trap."""
    name = "trap" if "trap" in request.fixturenames else "trap_for_m"
    bodies = request.getfixturevalue(name).bodies
    with Server(files={name: ok(body) for name, body in bodies.items()}) as running:
        yield running


@pytest.mark.parametrize("preflight", ["auto", "probe"])
def test_download_into_the_current_directory_again_and_again(
    trap: Trap, server: Server, preflight: str
) -> None:
    argv = trap.script("downloader", server.url, "-o", ".", "--preflight", preflight)
    trap.run(*argv)
    assert {path.name for path in trap.dest.iterdir()} > set(trap.bodies)
    trap.run(*argv, "--restart", "--report", "../r.json", "--progress", "bar", "--lane", "requests")
    trap.run(*trap.script("downloader", "verify", "."))
    trap.run(*trap.script("downloader", "status", "."))


def test_download_into_the_current_directory_with_python_m(trap_for_m: Trap, server: Server) -> None:
    argv = command(server.url, "-o", ".", "--preflight", "probe")
    trap_for_m.run(*argv)
    assert {path.name for path in trap_for_m.dest.iterdir()} > set(trap_for_m.bodies)
    trap_for_m.run(*argv, "--restart", "--json")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is there from 3.11 on")
def test_download_with_python_p_m(trap: Trap, server: Server) -> None:
    trap.put()
    trap.run(sys.executable, "-P", "-m", "downloader", server.url, "-o", ".", "--preflight", "probe")


def test_the_demo_where_files_of_a_server_are(trap: Trap) -> None:
    trap.put()
    assert "50 of 50 right" in trap.run(*trap.script("downloader", "demo", "--files", 50, "-o", "../demo"))


@pytest.mark.parametrize("pythonpath", ["", ":", ".", "DEST", "../dest:/nowhere"])
def test_a_program_elsewhere_calls_download_while_it_stands_in_the_destination(
    trap: Trap, server: Server, tmp_path: Path, pythonpath: str
) -> None:
    trap.put()
    program = tmp_path / "program.py"
    text = """
        import os
        os.environ["PYTHONPATH"] = {path!r}
        import downloader
        config = downloader.Config(source={url!r}, output={dest!r}, restart=True, preflight="probe")
        print(downloader.download(config).exit_code)
    """
    path = pythonpath.replace("DEST", str(trap.dest))
    program.write_text(textwrap.dedent(text).format(path=path, url=server.url, dest=str(trap.dest)))
    assert trap.run(sys.executable, program) == "0\n"


@pytest.mark.parametrize("style", ["downloader", "requests"])
def test_the_diagnostics_where_files_of_a_server_are(trap: Trap, style: str) -> None:
    trap.put()
    trap.run(*trap.script("diagnostics", "--style", style))


def test_the_diagnostics_with_python_m(trap_for_m: Trap) -> None:
    trap_for_m.put()
    trap_for_m.run(sys.executable, "-m", "diagnostics", "--style", "grequests")
    trap_for_m.run(sys.executable, "-m", "diagnostics", "scenarios", "--only", "stage_04", "--offline")


def test_a_server_that_is_serial_is_told_from_a_process_where_its_files_are(trap: Trap) -> None:
    """The control is a process of its own."""
    trap.put()
    url = "https://127.0.0.1:1/"
    trap.run(*trap.script("diagnostics", "--style", "requests", "--url", url), code=4)


def test_an_interpreter_is_examined_where_files_of_a_server_are(trap: Trap) -> None:
    trap.put()
    trap.run(*trap.script("diagnostics", "scenarios", "--list", "--python", sys.executable))
    trap.run(*trap.script("diagnostics", "scenarios", "--only", "nothing_of_the_name"), code=2)


def test_a_source_checkout_is_the_current_directory(trap: Trap, server: Server, tmp_path: Path) -> None:
    """As it is after `git clone`, and with files of a server in it."""
    for package in ("downloader", "diagnostics"):
        shutil.copytree(ROOT / package, trap.dest / package)
    (trap.dest / "downloader" / "_version.py").write_text('VERSION = "checkout"\n')
    for number, dest in enumerate(("../elsewhere", ".")):
        argv = (server.url, "-o", dest, "--preflight", "probe", "--json")
        out = trap.run(sys.executable, "-m", "downloader", *argv, PYTHONPATH=os.devnull)
        assert '"downloader":"checkout"' in out, number
