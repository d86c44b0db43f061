"""Names of packages whose modules are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

import ottla
from ottla.late_names import late_names

ROOT = Path(ottla.__file__).parent
PACKAGES = sorted(
    ".".join(("ottla", *path.parent.relative_to(ROOT).parts))
    for path in ROOT.rglob("__init__.py")
    if "late_names(" in path.read_text()
)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_that_a_package_announces_can_be_imported(package):
    """`__all__` and the table of modules agree, in each package that has one."""
    module = import_module(package)

    assert dir(module) == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_packages_with_such_names_are_found():
    """Else the test above would test nothing."""
    assert {"ottla", "ottla.testing", "ottla.streams"} <= set(PACKAGES)


def test_module_is_imported_once_its_name_is_used(tmp_path, monkeypatch):
    """Until then it is not, and afterwards the package has the name itself."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("__all__ = ['price', 'total']")
    (package / "money.py").write_text("price, total = 2, 6")
    monkeypatch.syspath_prepend(tmp_path)
    shop = import_module("shop")
    try:
        get, names = late_names("shop", {"money": "price total"})
        assert names() == ["price", "total"]
        assert "shop.money" not in sys.modules
        assert get("price") == 2
        assert shop.price == 2
        with pytest.raises(AttributeError, match="module 'shop' has no attribute 'cost'"):
            get("cost")
    finally:
        for name in ("shop", "shop.money"):
            sys.modules.pop(name, None)
