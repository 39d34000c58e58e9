"""The programs of a filter in one run, compiled to machine code for each link type that a packet comes with."""

import ctypes
import logging
from threading import RLock

import numpy as np

from wirespeed.core.stage import Site
from wirespeed.errors import WirespeedError
from wirespeed.jit import bpf
from wirespeed.net.filter import link_type
from wirespeed.ports.filter import reach, record
from wirespeed.ports.filter.expression import Filter

log = logging.getLogger("wirespeed")


class Links:
    """The table that kernels look into, and all that it points to; keep it for as long as they run."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.refused: dict[int, str] = {}  # why the filter cannot be applied to a link type
        self._table = np.zeros(record.LINKS, record.Entry.dtype)
        self._codes: list[bpf.MachineCode] = []
        self._lock = RLock()
        self._ask = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._asked)

    def add(self, link: int) -> None:
        """Compile the filter for a link type; raises :class:`GraphError` when it cannot be applied to it."""
        with self._lock:
            if not self._table["code"][link]:
                program = self.filter.program(link).instructions
                code = bpf.compile(program)
                self._codes.append(code)
                self._fill(link, code.address, reach.reach(program))

    def _fill(self, link: int, code: int, far: int) -> None:
        record.publish(self._table.ctypes.data + record.ENTRY * link, code, far)

    def _asked(self, link: int) -> None:
        """The first packet of a link type has come; called from a worker, which no exception may reach."""
        try:
            self.add(link)
        except Exception as error:
            if not isinstance(error, WirespeedError):
                log.exception("compiling a filter failed")
            self.refused[link] = str(error).partition("\n")[0]
            self._fill(link, record.REFUSED, 0)

    def place(self, site: Site, reason: int, inner: int = 0) -> int:
        """A worker's record: address of a :data:`record.Record`.  ``reason`` is the number of the first of its drops."""
        address = site.arena.alloc(record.Record.size)
        r = record.Record.at(address)
        r.inner, r.reason, r.link = inner, reason, -1
        r.table, r.ask = self._table.ctypes.data, ctypes.cast(self._ask, ctypes.c_void_p).value
        r.scratch = site.arena.alloc(reach.MOST)
        return address

    def counters(self) -> dict[str, int | str]:
        """What cannot be filtered, and why, for the report."""
        return {f"filter on {link_type.name_of(link)}": why for link, why in self.refused.items()}
