"""What several tests of records share: hand-made batches, and both kernels."""

import pytest

from ottla.record import columns, kernel, plain_kernel

KERNELS = [plain_kernel, kernel] if kernel.COMPILED else [plain_kernel]
BUILDERS = {plain_kernel: columns.ColumnBuilder, kernel: kernel.ColumnBuilder}


@pytest.fixture(params=KERNELS, ids=lambda module: "compiled" if module.COMPILED else "plain")
def loops(request):
    """The plain kernel, and the compiled one where it has been built."""
    return request.param


@pytest.fixture
def column_builder(loops):
    """The column builder that goes with the kernel."""
    return BUILDERS[loops]
