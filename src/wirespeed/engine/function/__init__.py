"""User functions: checked, translated once, then interpreted or compiled into stages of a graph."""

from wirespeed.engine.function.actions import (
    DROP,
    FORWARD,
    checksum_ipv4,
    checksum_l4,
    decrement_ttl,
    pop_vlan,
    push_vlan,
    random,
    rewrite,
    symmetric_hash,
)
from wirespeed.engine.function.element import Function, function
from wirespeed.engine.function.pkt import Pkt

__all__ = [
    "DROP", "FORWARD", "Function", "Pkt", "checksum_ipv4", "checksum_l4", "decrement_ttl", "function", "pop_vlan",
    "push_vlan", "random", "rewrite", "symmetric_hash",
]  # fmt: skip
