"""A filter: an expression of the pcap-filter language, checked when it is made, and its programs by link type.

A program belongs to one link type, for the same words are found at other offsets behind other headers.  An expression
is accepted when there is a link type of which it can match a packet; Ethernet is tried first, and its error is told.
"""

import logging
from typing import Any

from wirespeed.errors import GraphError
from wirespeed.jit import bpf
from wirespeed.net import filter as pcap_filter
from wirespeed.net.filter import LinkError, Names, Program, link_type
from wirespeed.net.link import LINKTYPE_ETHERNET

WHOLE = 0xFFFFFFFF  # what a program in the kernel returns for a match: keep all bytes, of frames of any size
RETURN_K = 0x06
LONG = 30_000  # characters of an expression that takes seconds to compile

log = logging.getLogger("wirespeed")


class Filter:
    """An expression, for any link type; raises :class:`wirespeed.errors.GraphError` with the place of what is wrong."""

    def __init__(self, expression: Any) -> None:
        if not isinstance(expression, str):
            raise GraphError(f"filter: got {expression!r}, wanted an expression such as 'tcp port 80'")
        self.expression = expression
        self.kernel_only = False  # whether only the kernel can tell, for it asks for the direction, say
        self._names = Names()
        self._programs: dict[int, Program] = {}
        if len(expression) > LONG:
            log.warning("the filter has %s characters: it will take seconds to compile", f"{len(expression):,}")
        self._check()

    def __str__(self) -> str:
        return self.expression

    def _check(self) -> None:
        try:
            self._programs[LINKTYPE_ETHERNET] = self._compiled(LINKTYPE_ETHERNET)
        except LinkError as error:
            if not any(self._matches_some(link) for link in link_type.SUPPORTED):
                self.kernel_only = self._matches_some(LINKTYPE_ETHERNET, in_kernel=True)
                if not self.kernel_only:
                    raise error from None

    def _compiled(self, link: int, *, in_kernel: bool = False, allow_never: bool = False) -> Program:
        """The program for a link type, one that machine code can be made of."""
        program = pcap_filter.compile(
            self.expression, link=link, in_kernel=in_kernel, allow_never=allow_never, names=self._names
        )
        if len(program) > bpf.MOST_STEPS:
            steps, most = f"{len(program):,}", f"{bpf.MOST_STEPS:,}"
            raise GraphError(f"a filter may have {most} steps, got {steps}; name networks instead of their hosts")
        return program

    def _matches_some(self, link: int, in_kernel: bool = False) -> bool:
        try:
            self._compiled(link, in_kernel=in_kernel)
        except GraphError:
            return False
        return True

    def program(self, link: int) -> Program:
        """The program for frames of a link type as they lie in memory, with their tags; it may be that none matches."""
        if link not in self._programs:
            self._programs[link] = self._compiled(link, allow_never=True)
        return self._programs[link]

    def kernel_program(self, link: int) -> tuple[tuple[int, int, int, int], ...]:
        """The program for Linux to run on frames as it has them, with the tag beside; what matches is kept whole."""
        program = self._compiled(link, in_kernel=True)
        return tuple((code, jt, jf, WHOLE if code == RETURN_K and k else k) for code, jt, jf, k in program.instructions)
