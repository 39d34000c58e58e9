"""Filters: the language of pcap-filter(7), compiled to programs of classic BPF.

>>> from wirespeed.net import filter
>>> program = filter.compile("tcp port 80 and not vlan", link=1)
>>> program.instructions[0], str(program), program.to_bytes()
>>> filter.interpret(program, frame)                 # 0: no match, else how many bytes to keep

``compile(expression, *, link=1, snaplen=262144, netmask=None, in_kernel=False) -> Program`` compiles for a link type
(LINKTYPE_*); a fault is a :class:`FilterError` whose message shows the place, or a :class:`LinkError` where another link
type may have what is asked for.  A program that jumps back
(``program.loops``: ``protochain``) is refused by the kernel and runs in the process only; one that asks the kernel
(``program.ancillary``) runs in the kernel only.  ``interpreter`` has the same as a kernel of ours.

Theory of operation
-------------------
Text becomes tokens (:mod:`lexer`), tokens a tree (:mod:`parser`), the tree conditions over blocks of a control flow
(:mod:`generate`, and a module for each family of primitives), blocks instructions (:mod:`assemble`).  What each
primitive tests, and in which order, is as in libpcap, so that both give the same verdict for each packet; the programs
are not the same.

*Source:* pcap-filter(7).
"""

from wirespeed.net.filter.compiler import compile
from wirespeed.net.filter.error import FilterError, LinkError
from wirespeed.net.filter.interpret import interpret
from wirespeed.net.filter.names import Names
from wirespeed.net.filter.program import Instruction, Program

__all__ = ["FilterError", "Instruction", "LinkError", "Names", "Program", "compile", "interpret"]
