"""Installing: one name at the top level, every file in the wheel, and every way of installing finds the same
package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("layout", "kernels", "codegen")


def copy_of_repository(target: Path) -> Path:
    """The files a build needs, links as links."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache", "build", "dist")
    target.mkdir()
    for name in (*FOLDERS, "src"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    return target


def python(
    code: str, cwd: Path, *, executable: str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that sees only what the environment gives it."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [executable, "-c", code]
    return subprocess.run(command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this repository, built from a copy by the installed setuptools: no network."""
    base = tmp_path_factory.mktemp("wheel")
    source = copy_of_repository(base / "repository")
    code = f"import setuptools.build_meta as b; b.build_wheel({str(base)!r})"
    done = python(code, source)
    assert done.returncode == 0, done.stderr
    (built,) = base.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_has_nothing_at_the_top_level_but_the_package(wheel_names: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"stridewright"}


def test_wheel_has_every_source_file(wheel_names: set[str]) -> None:
    expected = {"stridewright/py.typed", "stridewright/__init__.py"}
    for folder in FOLDERS:
        for suffix in ("*.py", "*.cuh", "*.cu"):
            found = (path for path in (ROOT / folder).rglob(suffix) if "__pycache__" not in path.parts)
            expected |= {f"stridewright/{path.relative_to(ROOT).as_posix()}" for path in found}
    assert any(name.endswith(".cuh") for name in expected)
    assert expected <= wheel_names, sorted(expected - wheel_names)


def test_wheel_runs_from_where_it_is_unpacked(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import stridewright.layout as l; print(l.__file__); print(l.Layout((4, 8), (8, 1)))"
    done = python(code, tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert done.stdout.splitlines() == [str(tmp_path / "site/stridewright/layout/__init__.py"), "(4,8):(8,1)"], (
        done.stderr
    )


def test_pythonpath_to_src_is_enough(tmp_path: Path) -> None:
    copy = copy_of_repository(tmp_path / "repository")
    code = "import stridewright, stridewright.layout; print(stridewright.__file__, stridewright.layout.Layout(3)(2))"
    done = python(code, tmp_path, PYTHONPATH=str(copy / "src"))
    assert done.stdout.split() == [str(copy / "src/stridewright/__init__.py"), "2"], done.stderr
    run_module = "import runpy, sys; sys.argv = ['stridewright', '--version']; runpy.run_module('stridewright', run_name='__main__')"
    assert python(run_module, tmp_path, PYTHONPATH=str(copy / "src")).stdout.startswith("stridewright ")


def test_checkout_without_links_finds_the_folders_at_the_root(tmp_path: Path) -> None:
    copy = copy_of_repository(tmp_path / "repository")
    for folder in FOLDERS:
        link = copy / "src/stridewright" / folder
        target = os.readlink(link)
        link.unlink()
        link.write_text(target)  # what git writes where it may not make links
    code = "import stridewright.layout as l; print(l.__file__, l.Layout(3)(2))"
    done = python(code, tmp_path, PYTHONPATH=str(copy / "src"))
    assert done.stdout.split() == [str(copy / "layout/__init__.py"), "2"], done.stderr


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_refuses_to_be_a_top_level_module(folder: str) -> None:
    done = python(f"import {folder}", ROOT, PYTHONPATH=str(ROOT))
    assert done.returncode == 1
    assert f"import stridewright.{folder}" in done.stderr.splitlines()[-1]


def test_importing_the_package_and_the_algebra_loads_nothing_heavy() -> None:
    code = (
        "import sys, stridewright, stridewright.layout;"
        "print([m for m in ('numpy', 'sympy', 'typer', 'rich', 'cupy', 'ml_dtypes') if m in sys.modules])"
    )
    assert python(code, ROOT).stdout.strip() == "[]"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['stridewright', '--help']\nfrom stridewright.codegen.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "print([m for m in ('numpy', 'sympy', 'cupy', 'ml_dtypes', 'platformdirs') if m in sys.modules])"
    )
    done = python(code, ROOT)
    assert done.stdout.strip().splitlines()[-1] == "[]", done.stderr


def test_readme_has_two_set_up_commands_and_ci_runs_them() -> None:
    commands = re.findall(r"^python3 -m venv \.venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 2
    assert "stridewright gemm 512 512 256" in commands[0]
    assert commands[1].rstrip().endswith("-m pytest -n 2")
    assert "grep -E '^python3 -m venv" in (ROOT / ".ci/run").read_text()


def test_version_is_the_same_everywhere() -> None:
    import stridewright

    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert declared[1] == stridewright.__version__
    assert f"## [{stridewright.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def new_environment(folder: Path, *requirements: str) -> Path:
    """A fresh virtual environment with these installed; its python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    executable = folder / "bin/python"
    if requirements:
        pip(executable, *requirements)
    return executable


def pip(executable: Path, *requirements: str) -> None:
    command = [str(executable), "-m", "pip", "install", "--quiet", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


USE = "import stridewright.layout as l; print(l.Layout((4, 8), (8, 1))(5))"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["clone", "sdist", "editable"])
def test_every_way_of_installing_works(how: str, tmp_path: Path) -> None:
    copy = copy_of_repository(tmp_path / "repository")
    executable = new_environment(tmp_path / "venv", "setuptools>=77")
    target: list[str] = [str(copy)]
    if how == "editable":
        target = ["-e", str(copy)]
    if how == "sdist":
        code = f"import setuptools.build_meta as b; b.build_sdist({str(tmp_path)!r})"
        done = python(code, copy, executable=str(executable))
        assert done.returncode == 0, done.stderr
        target = [str(next(tmp_path.glob("*.tar.gz")))]
    pip(executable, *target)
    done = python(USE, tmp_path, executable=str(executable))
    assert done.stdout.split()[0] == "9", done.stderr
    shown = subprocess.run(
        [str(tmp_path / "venv/bin/stridewright"), "layout", "(4,8):(8,1)"], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    cuda = "import stridewright.kernels as k, pathlib; print(any(pathlib.Path(k.__file__).parent.rglob('*.cuh')))"
    assert python(cuda, tmp_path, executable=str(executable)).stdout.strip() == "True"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["kernels", "stridewright"])
def test_installing_beside_the_kernels_package_harms_neither(first: str, wheel: Path, tmp_path: Path) -> None:
    executable = new_environment(tmp_path / "venv")
    for requirement in ("kernels", str(wheel)) if first == "kernels" else (str(wheel), "kernels"):
        pip(executable, requirement)
    code = (
        "import kernels, stridewright.kernels, importlib.metadata as m\n"
        "assert kernels.__file__ != stridewright.kernels.__file__\n"
        "for name in ('kernels', 'stridewright'):\n"
        "    missing = [str(f) for f in m.files(name) if not f.locate().exists()]\n"
        "    assert not missing, missing\n"
        "ours = {str(f.locate().resolve()) for f in m.files('stridewright')}\n"
        "theirs = {str(f.locate().resolve()) for f in m.files('kernels')}\n"
        "assert not ours & theirs, ours & theirs\n"
        "print('both work')"
    )
    done = python(code, tmp_path, executable=str(executable))
    assert done.stdout.strip() == "both work", done.stderr
    subprocess.run([str(executable), "-m", "pip", "uninstall", "-y", "-q", "stridewright"], check=True)
    assert python("import kernels; print('still')", tmp_path, executable=str(executable)).stdout.strip() == "still"


@pytest.mark.slow
@pytest.mark.parametrize(
    "compiler", ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-nvrtc>=13.0,<14", "nvidia-cuda-nvrtc-cu12>=12.9,<13"]
)
def test_main_job_runs_with_every_supported_compiler(compiler: str, wheel: Path, tmp_path: Path) -> None:
    executable = new_environment(tmp_path / "venv", str(wheel), compiler)
    command = [str(executable.parent / "stridewright"), "gemm", "130", "136", "72", "--on", "emulator", "--json"]
    environment = {**os.environ, "STRIDEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
