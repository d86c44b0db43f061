"""The archive's first start installs its own Ottla, whatever an index has under that name."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

INSTALLER = Path(__file__).parents[3] / "release" / "install.py"


def wheel(folder: Path, name: str, text: str, requires: str = "", build: str = "") -> None:
    """A wheel of a package that has one module, with a build tag if that is given."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\nProvides-Extra: more\n"
        metadata += 'Requires-Dist: not-there; extra == "more"\n'
        metadata += "Requires-Dist: connected>=1; extra == 'connect'\n"
    tag = f"{build}-" if build else ""
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", text)
        file.writestr(f"{info}/METADATA", metadata)
        lines = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr(f"{info}/WHEEL", lines + (f"Build: {build}\n" if build else ""))
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """An index of packages on loopback, in which a stranger has taken the name of Ottla."""
    root = tmp_path / "index"
    wheel(root / "simple" / "ottla", "ottla", "OWNER = 'a stranger'\n", build="9")
    for name in ("needed", "connected"):
        wheel(root / "simple" / name, name, "")
    serve = partial(SimpleHTTPRequestHandler, directory=str(root))
    serve.func.log_message = lambda *_: None  # type: ignore[method-assign]
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


@pytest.mark.wide
def test_own_wheel_is_installed_and_only_its_needs_come_from_the_index(
    tmp_path: Path, index: str
) -> None:
    """A stranger's wheel of the same version with a build tag would win where both are asked.

    What Connect needs is installed as well, as its scripts are in bin; of other extras nothing is.
    """
    home = tmp_path / "home"
    wheel(home / "libs", "ottla", "import needed, connected\nOWNER = 'we'\n", requires="needed>=1")
    (home / "VERSION").write_text("1.0\n")
    environment = {**os.environ, "PIP_INDEX_URL": index, "PIP_NO_CACHE_DIR": "1"}
    environment.pop("PYTHONPATH", None)
    subprocess.run([sys.executable, INSTALLER, home], check=True, env=environment)
    asked = [home / ".venv" / "bin" / "python", "-c", "import ottla; print(ottla.OWNER)"]
    answer = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=tmp_path)

    assert answer.stdout == "we\n"
