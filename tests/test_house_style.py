"""House style as tests: who may import whom, cores without I/O, files of a readable size."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "squid": {"squid"},
    "arms": {"arms", "squid"},
    "meteor": {"meteor", "arms", "squid"},
}

# Modules whose job is I/O, threads, the clock or chance. Everything else is a core.
SHELLS = {
    "arms/schema.py",  # opens files
    "arms/store.py",  # reads and writes them
    "meteor/bench",
    "meteor/blocking.py",
    "meteor/cli",
    "meteor/client",
    "meteor/config.py",
    "meteor/elements.py",
    "meteor/node",
    "meteor/simulation",
    "meteor/transport",
    "meteor/workers.py",
    "meteor/background.py",
}

FORBIDDEN_IN_CORES = {
    "asyncio", "datetime", "fcntl", "os", "pathlib", "secrets", "socket", "subprocess", "threading",
    "time", "trio", "uuid",
}  # fmt: skip

PYTHON_LINES_MAX = 450


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Give the top-level names of every module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield (node.module or "").split(".")[0], node


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_arrows_point_down_only(package: str) -> None:
    for path in modules(package):
        for name, node in imports(path):
            if name in MAY_IMPORT:
                assert name in MAY_IMPORT[package], f"{path}:{node.lineno} imports {name}"


def is_core(path: Path) -> bool:
    relative = path.relative_to(ROOT).as_posix()
    return not any(relative == shell or relative.startswith(f"{shell}/") for shell in SHELLS)


def test_cores_have_no_clock_no_chance_and_no_io() -> None:
    for path in (path for package in MAY_IMPORT for path in modules(package) if is_core(path)):
        for name, node in imports(path):
            assert name not in FORBIDDEN_IN_CORES, f"{path}:{node.lineno} imports {name}"
            if name == "random":  # the type, to be given one; never the module's own functions
                assert isinstance(node, ast.ImportFrom), f"{path}:{node.lineno}"
                assert [alias.name for alias in node.names] == ["Random"], f"{path}:{node.lineno}"
        source = path.read_text(encoding="utf-8")
        assert "open(" not in source.replace("_open(", ""), f"{path} opens files"


def test_there_are_no_other_packages_at_the_top() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    tops = {name.split("/")[0] for name in tracked}
    assert tops <= {"squid", "arms", "meteor", "motes", "deployments", "tests"}


def test_files_stay_readable() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for package in MAY_IMPORT
        for path in modules(package)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > PYTHON_LINES_MAX
    }
    assert long == {}


def test_no_error_is_swallowed() -> None:
    for path in (path for package in MAY_IMPORT for path in modules(package)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{path}:{node.lineno}: a bare except"
                only_pass = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
                assert not only_pass, f"{path}:{node.lineno}: an error is passed over in silence"
