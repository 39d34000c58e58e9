"""Some packets of a capture that follow one another, for Python: NumPy columns over memory, or values."""

from typing import Any

import numpy as np
import numpy.typing as npt

from wirespeed.core.frame import Packet
from wirespeed.jit.libc import copy_out
from wirespeed.net.capture import options


class Burst:
    """Some packets that follow one another.  Columns and bytes lie in the reader's window: good until the next burst."""

    def __init__(self, entries: Any) -> None:
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    def _column(self, name: str) -> npt.NDArray[Any]:
        column: npt.NDArray[Any] = self.entries[name]
        return column

    @property
    def address(self) -> npt.NDArray[np.int64]:
        """Where each packet's bytes lie."""
        return self._column("address")

    @property
    def time(self) -> npt.NDArray[np.int64]:
        """Nanoseconds since 1970; 0 where the file gives no time."""
        return self._column("time")

    @property
    def captured(self) -> npt.NDArray[np.uint32]:
        """Bytes that are there."""
        return self._column("captured")

    @property
    def wire(self) -> npt.NDArray[np.uint32]:
        """Bytes that were on the wire."""
        return self._column("wire")

    @property
    def link(self) -> npt.NDArray[np.uint16]:
        """Link types (LINKTYPE_*)."""
        return self._column("link")

    @property
    def interface(self) -> npt.NDArray[np.uint32]:
        """Numbers into the reader's ``interfaces``."""
        return self._column("interface")

    def data(self, i: int) -> bytes:
        """A copy of packet ``i``'s bytes."""
        return copy_out(int(self.entries["address"][i]), int(self.entries["captured"][i]))

    def options(self, i: int) -> list[tuple[int, bytes]]:
        """The options of packet ``i``'s block as they stand in the file: codes and values."""
        return options.parse(*self._options(i))

    def comments(self, i: int) -> tuple[str, ...]:
        """The comments on packet ``i``."""
        return options.comments(*self._options(i))

    def _options(self, i: int) -> tuple[bytes, bool]:
        entry = self.entries[i]
        return copy_out(int(entry["options"]), int(entry["options_size"])), bool(entry["swapped"])

    def packet(self, i: int) -> Packet:
        """Packet ``i`` as a value that stays good."""
        entry = self.entries[i]
        return Packet(self.data(i), int(entry["time"]), wire=int(entry["wire"]), link=int(entry["link"]))
