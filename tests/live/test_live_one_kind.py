"""Two hosts over a bridge between two ports of one kind, and over the kernel's own bridge, which proves the tests."""

from collections.abc import Iterator

import pytest

from tests.live.acceptance import Acceptance
from tests.live.bridge import KERNEL, Bridge, bridged

PAIRS = [(KERNEL, KERNEL), ("packet", "packet"), ("xdp", "xdp"), ("tap", "tap")]


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def bridge(request: pytest.FixtureRequest) -> Iterator[Bridge]:
    with bridged(request.param) as made:
        yield made


class TestOneKind(Acceptance):
    """The same ports at both ends."""
