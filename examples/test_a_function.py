"""A function on plain bytes: tests of your own need no engine, no files and no compiler."""

from one_hop import one_hop

import wirespeed as ws

ETHERNET = bytes.fromhex("020000000002 020000000001 0800")
IPV4 = bytes.fromhex("4500001c 00000000 4011b027 0a000001 c0a80001")  # 64 hops to live
UDP = bytes.fromhex("03e807d0 00080000")


def test_one_hop_is_taken_off():
    """The verdict and the bytes come back, the same from Python as from compiled code."""
    verdict, frame = one_hop(ETHERNET + IPV4 + UDP)
    assert verdict == ws.FORWARD
    assert frame[22] == 63


def test_the_last_hop_is_dropped():
    """Whoever has one hop left goes no further."""
    dying = bytearray(ETHERNET + IPV4 + UDP)
    dying[22] = 1
    assert one_hop(dying)[0] == ws.DROP


if __name__ == "__main__":
    test_one_hop_is_taken_off()
    test_the_last_hop_is_dropped()
    print("passed")
