"""The errors that wirespeed raises, all on the control path.

::

    WirespeedError
    ├── GraphError      (also ValueError)   a graph, rule or argument that cannot work
    ├── FunctionError   (also TypeError)    a user function that will not compile: file, line, field
    ├── PortError       (also OSError)      a device, file or socket that would not open
    └── PeerError                           the other side broke its protocol

A message says what was got, what was wanted and what to do.
"""


class WirespeedError(Exception):
    """The base of all errors that wirespeed raises."""


class GraphError(WirespeedError, ValueError):
    """A graph, a rule or an argument that cannot work."""


class FunctionError(WirespeedError, TypeError):
    """A user function that will not compile; the message begins with its name and line.

    ``file`` and ``line`` say where, "" and 0 when it is the function as a whole.
    """

    file: str = ""
    line: int = 0


class PortError(WirespeedError, OSError):
    """A device, file or socket that would not open."""


class PeerError(WirespeedError):
    """The other side broke its protocol."""
