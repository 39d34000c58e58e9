"""Two hosts over a bridge between ports of two kinds: what one of them hands on, the other must be able to send."""

from collections.abc import Iterator

import pytest

from tests.live.acceptance import Acceptance
from tests.live.bridge import Bridge, bridged

PAIRS = [("packet", "tap"), ("packet", "xdp"), ("xdp", "tap")]


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def bridge(request: pytest.FixtureRequest) -> Iterator[Bridge]:
    with bridged(request.param) as made:
        yield made


class TestTwoKinds(Acceptance):
    """Different ports at the two ends."""
