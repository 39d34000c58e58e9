"""What the parts of a graph have done beside the data path: each service is called again when it asked to be."""

import time
from collections.abc import Callable, Iterable

Service = Callable[[], float | None]
NEVER = float("inf")


class Services:
    """The services of a run.  One thread calls them; one that raises is not called again."""

    def __init__(self, services: Iterable[Service | None]) -> None:
        self._due = {service: 0.0 for service in services if service is not None}

    def wait_s(self) -> float:
        """Seconds until one wants to be called."""
        return max(0.0, min(self._due.values(), default=NEVER) - time.monotonic())

    def run_due(self) -> None:
        """Call those whose time has come."""
        for service in [s for s, at in self._due.items() if at <= time.monotonic()]:
            self._due[service] = NEVER
            again = service()
            if again is not None:
                self._due[service] = time.monotonic() + again
