"""The function that ``wirespeed demo`` runs, as a user would write it."""

import wirespeed as ws


@ws.function
def one_hop(pkt: ws.Pkt) -> int:
    """Forward IPv4 with one hop less to live; drop the rest."""
    if not pkt.ipv4 or pkt.ipv4.ttl <= 1:
        return ws.DROP
    ws.decrement_ttl(pkt.ipv4)  # and its checksum, by RFC 1624
    return ws.FORWARD
