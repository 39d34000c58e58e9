"""A filter expression compiled to a program of classic BPF, from its text to its instructions."""

from wirespeed.net.filter.assemble import assemble, ordered
from wirespeed.net.filter.block import Block, constant, lead
from wirespeed.net.filter.error import FilterError, LinkError
from wirespeed.net.filter.generate import Generator
from wirespeed.net.filter.layers import Layers
from wirespeed.net.filter.link_type import ETHERNET
from wirespeed.net.filter.literal import ipv4
from wirespeed.net.filter.names import Names
from wirespeed.net.filter.opcode import LONGEST
from wirespeed.net.filter.optimise import optimise
from wirespeed.net.filter.parser import parse
from wirespeed.net.filter.program import Program
from wirespeed.net.filter.prologue import with_memory_set, with_prologue

SNAPLEN = 262144


def compile(
    expression: str,
    *,
    link: int = ETHERNET,
    snaplen: int = SNAPLEN,
    netmask: int | str | None = None,
    in_kernel: bool = False,
    allow_never: bool = False,
    names: Names | None = None,
) -> Program:
    """Compile an expression of pcap-filter(7) for a link type (LINKTYPE_*); an empty one matches each packet.

    ``snaplen`` is what the program returns for a match, 1 to 2^32 - 1.  ``netmask`` is of the network that
    ``ip broadcast`` means.  ``in_kernel`` compiles for a socket of Linux, where the first VLAN tag stands beside the
    packet's bytes and the kernel tells the interface and the direction.  An expression that no packet can match is an
    error unless ``allow_never``.  ``names`` stand in for the system's databases.  Raises FilterError.
    """
    if not isinstance(expression, str):
        raise FilterError(f"a filter: got {expression!r}, wanted an expression such as 'tcp port 80'")
    if not 0 < snaplen < 1 << 32:
        raise FilterError(f"snaplen must be from 1 to 4294967295, got {snaplen}")
    tree = parse(expression)
    layers = Layers(link, in_kernel)
    mask = ipv4(netmask)[0] if isinstance(netmask, str) else netmask
    condition = constant(True)
    if tree is not None:
        condition = Generator(expression, layers, names or Names(), mask).condition(tree)
    match, miss = Block(answer=snaplen), Block(answer=0)
    if condition.always is None:
        condition = with_prologue(layers, condition)
        lead(condition.yes, match)
        lead(condition.no, miss)
        entry = with_memory_set(optimise(condition.entry))
    else:
        entry = match if condition.always else miss
    if not allow_never and all(block.answer in (None, 0) for block in ordered(entry)):
        raise LinkError("the expression rejects all packets", expression, 0, len(expression))
    instructions = assemble(entry)
    if len(instructions) > LONGEST and in_kernel:
        what = f"the program has {len(instructions)} instructions, of which the kernel takes {LONGEST}"
        raise FilterError(what, expression, 0, len(expression))
    return Program(instructions, expression, link, snaplen, in_kernel)
