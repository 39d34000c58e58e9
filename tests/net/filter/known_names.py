"""Names of hosts and networks that libpcap's tests use, since none of them is in the system's databases."""

from ipaddress import ip_address

from wirespeed.net.filter import Names

V4, V6 = [0x0A141E28], [int(ip_address("fd00:a1b2:c3d4::1020:3040:5060:7080"))]
FOUR = [0xC0A8F103, 0xC0A8F204, 0xC0A8F301, 0xC0A8F402]
TWO = [int(ip_address(f"fd00:a1b2:c3d4::a0b0:c0d0:e0f0:{last}")) for last in ("1278", "3456")]
HOSTS: dict[str, tuple[list[int], list[int]]] = {
    "noeth-ipv4-noipv6.host123.libpcap.test": (V4, []),
    "noeth-ipv4-ipv6.host123.libpcap.test": (V4, V6),
    "noeth-noipv4-ipv6.host123.libpcap.test": ([], V6),
    "eth-ipv4-noipv6.host123.libpcap.test": (V4, []),
    "eth-ipv4-ipv6.host123.libpcap.test": (V4, V6),
    "eth-noipv4-ipv6.host123.libpcap.test": ([], V6),
    "eth-noipv4-noipv6.host123.libpcap.test": ([], []),
    "eth-ipv4x4-noipv6.host357.libpcap.test": (FOUR, []),
    "eth-noipv4-ipv6x2.host357.libpcap.test": ([], TWO),
    "eth-ipv4x4-ipv6x2.host357.libpcap.test": (FOUR, TWO),
}
HARDWARE = {"host123": bytes.fromhex("aa000400140e"), "host357": bytes.fromhex("aa0004000108")}
NETWORKS = {"net-10-0-0-0": 0x0A000000, "net-10-20-0-0": 0x0A140000, "net-10-20-30-0": 0x0A141E00}


class KnownNames(Names):
    """Those names; ports and protocols are the system's."""

    def host(self, name: str) -> tuple[list[int], list[int]]:
        return HOSTS.get(name.lower(), ([], []))

    def network(self, name: str) -> int:
        return NETWORKS.get(name.lower().partition(".")[0], 0)

    def hardware(self, name: str) -> bytes | None:
        name = name.lower()
        return HARDWARE.get(name.split(".")[1]) if name.startswith("eth") and name in HOSTS else None
