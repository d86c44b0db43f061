"""Makes the environment that the scripts of the archive run in, once: .venv from libs/*.whl.

What is not in libs comes from PyPI. It runs on any Python 3, to say which one is needed.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - any python3 may be the first on PATH
    sys.exit(
        f"Ottla needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. "
        "PYTHON=... names another one."
    )

import fcntl
import subprocess
import venv
from pathlib import Path

# What Ottla needs for the scripts in bin, a line for each: itself, and for these of its extras.
NEEDS = """
import re
from importlib.metadata import requires
for each in requires("ottla") or ():
    extra = re.search("extra == .([a-z-]+)", each)
    if extra is None:
        print(each)
    elif extra[1] in ("connect", "metrics"):
        print(each.partition(";")[0])
"""


def install(home: Path) -> None:
    """Make the environment unless another start has just done so."""
    place = home / ".venv"
    ready = place / "ready"
    with (home / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists():
            return
        print(f"setting up {place}, once", flush=True)
        venv.create(place, clear=True, with_pip=True)
        version = home.joinpath("VERSION").read_text().strip()
        python = [place / "bin" / "python", "-P"]
        pip = [*python, "-m", "pip", "install", "--quiet", "--prefer-binary"]
        pip += ["--disable-pip-version-check", "--find-links", home / "libs"]
        # Ottla itself comes from libs alone: an index may have a stranger's package of its name.
        subprocess.run([*pip, "--no-index", "--no-deps", f"ottla=={version}"], check=True)
        needs = subprocess.run([*python, "-c", NEEDS], capture_output=True, text=True, check=True)
        wanted = needs.stdout.split("\n")[:-1]
        # The wheels in libs are enough where they fit this Python; then no network is needed.
        alone = subprocess.run([*pip, "--no-index", *wanted], capture_output=True, check=False)
        if alone.returncode != 0:
            subprocess.run([*pip, *wanted], check=True)
        ready.write_text(f"{sys.version}\n")


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"Ottla's packages could not be installed: pip ended with {error.returncode}")
