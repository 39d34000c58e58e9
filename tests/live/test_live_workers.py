"""Two workers with a queue of each port: flows are spread over them, and nothing is doubled, lost or out of order."""

import pytest

from tests.live.acceptance import flood
from tests.live.bridge import bridged
from tests.live.test_live_functions import check_whole

PAIRS = [("packet", "packet"), ("tap", "tap"), ("xdp", "xdp"), ("packet", "tap"), ("xdp", "tap")]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_several_connections_over_two_workers(kinds: tuple[str, str]) -> None:
    with bridged(kinds, workers=2) as bridge:
        done = bridge.ping(4, count=20)
        assert " 0% packet loss" in done.stdout and "duplicates" not in done.stdout, done.stdout
        flood(bridge, "a", "-P", "4")
        flood(bridge, "b", "-R", "-P", "4")
        check_whole(bridge)
