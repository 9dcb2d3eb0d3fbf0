#!/usr/bin/env python3
"""Builds the Python module against a build tree, and runs its tests.

    run.py BUILD             tests without Torch (NumPy alone), and the examples that need none
    run.py BUILD --torch     the others too: with torch and torch_geometric
    run.py --wheel FILE      the tests without Torch against a wheel and its command, in a clean environment

BUILD: by the interpreter QUARRY_PYTHON, or else that of BUILD/python/core (BUILD/python/torch), or else this one.
With --install that environment is made, with packages of PyPI, where it lacks some. Without, nothing is
installed: exits with 77, and a sentence, where something is missing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "client/python"
NEEDED = ["nanobind>=3.0", "nanobind-backend>=1.0", "numpy>=2.1"]
READERS = ["pandas", "pyarrow", "polars", "duckdb"]  # of SQL results; tests of one that is not there are skipped
WITH_TORCH = ["torch", "torch_geometric>=2.5", "mypy", "ray[train]", "moto[server]>=5.2.5", *READERS]  # tests of the last but READERS are skipped, too, without


def skip(why: str) -> None:
    print(f"python_test: skipped: {why}")
    sys.exit(77)


def has(python: Path, modules: list[str]) -> bool:
    return subprocess.run([python, "-c", f"import {', '.join(modules)}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def environment(folder: Path, packages: list[str]) -> Path:
    """The interpreter of a new environment that has these packages."""
    try:
        venv.create(folder, with_pip=True, clear=True, symlinks=True)
    except (subprocess.CalledProcessError, OSError) as error:
        skip(f"no virtual environment can be made ({error}); Debian's package python3-venv lets one")
    python = folder / "bin/python"
    installed = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], capture_output=True, text=True)
    if installed.returncode != 0:
        skip(f"{', '.join(packages)} cannot be installed: {installed.stderr.strip().splitlines()[-1:]}")
    return python


def interpreter(folder: Path, packages: list[str], modules: list[str], install: bool) -> Path:
    """One that has these modules, and the headers to build another."""
    python = Path(os.environ.get("QUARRY_PYTHON") or folder / "bin/python")
    if not python.exists():
        python = Path(sys.executable)
    if not has(python, modules):
        if not install:
            skip(f"{python} lacks one of {', '.join(modules)}; `./dev test python` installs them into an environment under the build tree")
        python = environment(folder, packages)
    headers = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"], capture_output=True, text=True).stdout.strip()
    if not (Path(headers) / "Python.h").exists():
        skip(f"{headers} has no Python.h, which Debian's package python3-dev brings")
    return python


def build(python: Path, library: Path, folder: Path) -> Path:
    """The folder with the package `quarry`: its sources, and the module over `library`."""
    module = folder / "module"
    configure = ["cmake", "-S", SOURCE, "-B", module, f"-DQUARRY_LIBRARY={library}", f"-DPython_EXECUTABLE={python}"]
    if shutil.which("ninja"):
        configure[1:1] = ["-G", "Ninja"]
    for command in (configure, ["cmake", "--build", module]):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            sys.exit("the module does not build")
    package = folder / "package"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(SOURCE / "quarry", package / "quarry", ignore=shutil.ignore_patterns("__pycache__"))
    for built in module.glob("_quarry*.so"):
        shutil.copy(built, package / "quarry")
    return package


def run_tests(python: Path, path: Path | None, selected: list[str]) -> int:
    variables = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="1", QUARRY_EXAMPLES=str(SOURCE / "examples"))
    variables.pop("PYTHONPATH", None)
    if path is not None:
        variables["PYTHONPATH"] = str(path)
    with tempfile.TemporaryDirectory() as elsewhere:  # not the sources: what is imported is what was built
        tests = [python, "-m", "unittest", "discover", "-s", ROOT / "tests/python", "-t", ROOT / "tests/python", *selected]
        return subprocess.run([str(part) for part in tests], env=variables, cwd=elsewhere).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=Path, help="build tree with client/libquarry.so.0")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("tests", nargs="*", help="what follows goes to unittest: -k NAME, -v")
    arguments, others = parser.parse_known_args()
    selected = others + arguments.tests
    if sys.version_info < (3, 10):
        skip(f"Python {sys.version.split()[0]}: 3.10 is the first that the package is for")
    if arguments.wheel is not None:
        with tempfile.TemporaryDirectory() as folder:
            python = environment(Path(folder) / "clean", [str(arguments.wheel.resolve()), "numpy>=2.1"])
            os.environ["QUARRY_BINARY"] = str(python.parent / "quarry")
            return run_tests(python, None, selected)
    folder = arguments.build.resolve() / "python"
    library = arguments.build.resolve() / "client/libquarry.so.0"
    packages, modules = NEEDED, ["numpy", "nanobind", "nanobind_backend"]
    if arguments.torch:
        packages, modules = NEEDED + WITH_TORCH, modules + ["torch", "torch_geometric"]
    python = interpreter(folder / ("torch" if arguments.torch else "core"), packages, modules, arguments.install)
    return run_tests(python, build(python, library, folder), selected)


if __name__ == "__main__":
    sys.exit(main())
