"""Features, and rooms above the clients, are deleted from a copy of Ottla with their tests.

The core works without them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = "tests/deletions"
FEATURES = sorted(
    f"extensions/{path.parent.name}"
    for path in (ROOT / "src/ottla/extensions").glob("*/__init__.py")
)
ROOMS = ("connect", "mirror", "spark", "streams", "pipelines", "warehouse", "site")
ROOMS += ("console", "testing/simulation")
"""What stands on the clients; it uses the broker as any program does."""

FOLDERS = [*FEATURES, *ROOMS]
CORE = ("runtime", "protocol", "record", "log", "registry", "network", "security", "replication")
CORE += ("coordinator", "controller", "server", "metrics")
LIMIT_S = 1_200


def copy_without(folders: list[str], target: Path) -> Path:
    """A copy of the repository without some folders of the package and their tests."""
    ignored = shutil.ignore_patterns("__pycache__", "*.md", "samples")
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, target / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", target)
    for folder in folders:
        shutil.rmtree(target / "src/ottla" / folder)
        shutil.rmtree(target / "tests/unit" / folder, ignore_errors=True)
    return target


def run(copy: Path, *words: str) -> None:
    """Run Python in the copy, which imports the copy; it ends with 0."""
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    environment.pop("OTTLA_FAILED_TESTS", None)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4_000:]}\n{done.stderr[-2_000:]}"


@pytest.mark.parametrize(
    "folders", [*([each] for each in FOLDERS), FEATURES, FOLDERS], ids="-".join
)
def test_broker_serves_without_a_folder(folders: list[str], tmp_path: Path):
    """It takes records, gives them to members of a group, and commits transactions."""
    copy = copy_without(folders, tmp_path)
    run(copy, f"{HERE}/core_requests.py", str(copy))


@pytest.mark.timeout(LIMIT_S)
def test_unit_tests_of_the_core_pass_without_any_folder(tmp_path: Path):
    """No test of the core needs one."""
    copy = copy_without(FOLDERS, tmp_path)
    run(copy, "-m", "pytest", *(f"tests/unit/{room}" for room in CORE))
