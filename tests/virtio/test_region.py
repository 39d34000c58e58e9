"""Where a guest's addresses lie here, against the same in whole numbers of any size."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tests.virtio.rings import PAGE, Guest
from wirespeed.jit.kernel import kernel
from wirespeed.ports.virtio.features import Feature, ProtocolFeature, bits, has, names
from wirespeed.ports.virtio.region import RECORDS, REGION, Region, to_host, user_to_host

u64 = np.uint64
PLACES = [(PAGE, 2 * PAGE), (3 * PAGE, PAGE), (1 << 40, 5 * PAGE), (2**64 - PAGE, PAGE)]
GUEST = Guest(*PLACES)
near = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from(PLACES).flatmap(lambda p: st.integers(p[0] - 3, p[0] + p[1] + 3).filter(lambda a: 0 <= a < 2**64)),
)


@kernel
def ask(regions, low, high, size, user):
    """The address comes in two halves, for what Python hands over is signed."""
    address = u64(high) << u64(32) | u64(low)
    return user_to_host(regions, address, size) if user else to_host(regions, address, size)


def expected(address, size):
    for i, (at, length) in enumerate(PLACES):
        if at <= address < at + length:
            host = Region.at(GUEST.regions + RECORDS + REGION * i).host
            return host + address - at, min(size, at + length - address)
    return 0, 0


@given(near, st.one_of(st.integers(0, 3 * PAGE), st.integers(0, 2**32 - 1)))
@example(2**64 - 1, 2)
@example(3 * PAGE - 1, 2)
def test_as_many_bytes_are_mapped_as_lie_in_one_region(address, size):
    assert ask(GUEST.regions, address & 0xFFFFFFFF, address >> 32, size, False) == expected(address, size)
    if address + (1 << 40) < 2**64:
        user = address + (1 << 40)
        assert ask(GUEST.regions, user & 0xFFFFFFFF, user >> 32, size, True) == expected(address, size)


def test_features_have_names():
    word = bits([Feature.MRG_RXBUF, Feature.VERSION_1, 41])
    assert word == 1 << 15 | 1 << 32 | 1 << 41 and has(word, Feature.VERSION_1) and not has(word, Feature.CSUM)
    assert names(word) == ["MRG_RXBUF", "VERSION_1", "bit 41"]
    assert names(1 << 12 | 1, ProtocolFeature) == ["MQ", "INFLIGHT_SHMFD"]
