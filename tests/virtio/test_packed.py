"""Packed rings, both ways, against a plain driver and a plain model of what the device does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtio.exchanges import run_dequeue, run_enqueue
from tests.virtio.rings import PackedDriver


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("features", [{}, {"header": 10}, {"in_order": 1}, {"batch": 0, "prefetch": 0}], ids=str)
def test_frames_from_the_guest_come_out_in_order_and_its_buffers_go_back_once(features, data):
    run_dequeue(PackedDriver, data, **features)


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("features", [{}, {"header": 10}, {"mergeable": 1}, {"mergeable": 1, "batch": 0}], ids=str)
def test_frames_to_the_guest_go_into_the_buffers_that_the_model_says(features, data):
    run_enqueue(PackedDriver, data, **features)
