"""What the tests of both ring formats have in common: plain models of both directions, and random runs against them."""

import struct
from collections import deque

from hypothesis import strategies as st

from tests.virtio.rings import EDGE, Device, frame, memory
from wirespeed.ports.virtio.queue import ALL_TAKEN, NO_BUFFERS, TOO_LONG

BASES = st.sampled_from([0, 1, 7, 65528, 65535])
SIZES = st.sampled_from([4, 16, 64])
lengths = st.one_of(st.sampled_from([1, 14, 60, 64, 65, 255, 256, 257, 1514, 1920, 1921, 9000]), st.integers(1, 3000))


@st.composite
def cuts(draw, size):
    """Sizes of up to six pieces, some of them 0, that are ``size`` together."""
    places = sorted(draw(st.lists(st.integers(0, size), max_size=5)))
    return [b - a for a, b in zip([0, *places], [*places, size], strict=True)]


def place_pieces(guest, sizes, across):
    """Room for pieces; with ``across`` each lies astride two regions where it can."""
    out = []
    for i, size in enumerate(sizes):
        if across and i == 0 and size > 1:
            out.append((EDGE - size // 2, size))
        else:
            out.append((guest.place(max(size, 1), region=i % 3, align=1), size))
    return out


def write_chain(guest, pieces, data):
    for address, size in pieces:
        guest.write(address, data[:size])
        data = data[size:]


def read_chain(guest, pieces):
    return b"".join(guest.read(address, size) for address, size in pieces)


def run_dequeue(driver_type, data, **features):
    """Frames from the guest, however they lie in its memory, come out in order, and each buffer comes back once."""
    guest = memory()
    driver = driver_type(guest, data.draw(SIZES), data.draw(BASES))
    driver.in_order = bool(features.get("in_order"))
    header = features.setdefault("header", 12)
    with Device(driver, pool=256, indirect=1, **features) as device:
        lent, given, number = deque(), deque(), 0
        for _ in range(data.draw(st.integers(1, 12))):
            if data.draw(st.booleans()):
                size = data.draw(lengths)
                pieces = place_pieces(guest, data.draw(cuts(header + size)), data.draw(st.booleans()) and not given)
                table = guest.place(16 * len(pieces)) if data.draw(st.booleans()) and len(pieces) <= driver.size else 0
                sent = frame(number, size)
                chain = driver.add([(a, n, 0) for a, n in pieces], table)
                if chain is None:
                    continue
                # The device looks only when it is told to: here the driver may still write what it has offered.
                write_chain(guest, pieces, bytes(header) + sent)
                lent.append(chain)
                given.append(sent)
                number += 1
            else:
                most = data.draw(st.integers(1, 32))
                got = device.frames(most)
                assert got == [given.popleft() for _ in range(min(most, len(given)))]
                assert driver.returned() == [(lent.popleft(), 0) for _ in got]
        assert device.q.packets == number - len(given)
        assert not device.refused


def fit(rooms, need, mergeable, ring):
    """The model of a reservation: (chains given back unused, lengths written or None, why not)."""
    rooms, spoilt = list(rooms), 0
    while True:
        if not rooms:
            return spoilt, None, NO_BUFFERS
        if mergeable:
            written, left = [], need
            for room in rooms:
                written.append(min(room, left))
                left -= written[-1]
                if not left:
                    return spoilt, written, ALL_TAKEN
            return spoilt, None, TOO_LONG if len(rooms) == ring else NO_BUFFERS
        if rooms[0] >= need:
            return spoilt, [need], ALL_TAKEN
        if rooms[0] >= 1526:
            return spoilt, None, TOO_LONG
        spoilt += 1
        rooms.pop(0)


def run_enqueue(driver_type, data, **features):
    """Frames to the guest go into the buffers that the model says, header and all, and each buffer comes back once."""
    guest = memory()
    driver = driver_type(guest, data.draw(SIZES), data.draw(BASES))
    header = features.setdefault("header", 12)
    mergeable = features.get("mergeable", 0)
    with Device(driver, pool=256, indirect=1, **features) as device:
        lent, number = deque(), 0
        for _ in range(data.draw(st.integers(1, 12))):
            if data.draw(st.booleans()):
                for _ in range(data.draw(st.integers(1, 8))):
                    room = data.draw(st.sampled_from([64, 1000, 1526, 1600, 2048]))
                    pieces = place_pieces(guest, data.draw(cuts(room)), data.draw(st.booleans()) and not lent)
                    table = (
                        guest.place(16 * len(pieces)) if data.draw(st.booleans()) and len(pieces) <= driver.size else 0
                    )
                    chain = driver.add([(a, n, 1) for a, n in pieces], table)
                    if chain is not None:
                        lent.append((chain, pieces, room))
                continue
            frames = [frame(number + i, data.draw(lengths)) for i in range(data.draw(st.integers(1, 4)))]
            number += len(frames)
            wanted, expected, why = [], [], ALL_TAKEN
            rest = deque(lent)
            for sent in frames:
                # A ring of four with four chains lent is the only one that can be used up by one packet.
                spoilt, written, why = fit([r for _, _, r in rest], header + len(sent), mergeable, driver.size)
                for _ in range(spoilt):
                    wanted.append((rest.popleft()[0], 0))
                if written is None:
                    break
                used = [rest.popleft() for _ in written]
                wanted += [(c, n) for (c, _, _), n in zip(used, written, strict=True)]
                expected.append((used, written, sent))
            taken = device.transmit(frames)
            assert (taken, device.q.stop) == (len(expected), why)
            assert driver.returned() == wanted
            for used, written, sent in expected:
                got = b"".join(read_chain(guest, p)[:n] for (_, p, _), n in zip(used, written, strict=True))
                words = bytes(10) + (struct.pack("<H", len(used)) if header == 12 else b"")
                assert got == words + sent
            lent = rest
