"""Keeps the code of a running switch fit for the shape of its rules, in a thread of its own.

A change of the shape (:mod:`wirespeed.switch.live`) wakes it; it waits until no other one has come for a moment, then
compiles.  Traffic goes on meanwhile by the generic code, or by what was compiled before, which hands on what is not its
own.
"""

import atexit
import logging
import threading
from typing import Any

QUIET_S = 0.2  # without another change, before anything is compiled
PATIENCE_S = 0.1  # that closing waits for what is being compiled
log = logging.getLogger("wirespeed")


class Specialiser:
    """Specialises ``switch`` when it begins and after each change of its shape, until it is closed; a context manager.

    ``shape`` is that of what was compiled last, ``compiled`` how often that was, ``failed`` why it could not be.
    """

    def __init__(self, switch: Any, quiet_s: float = QUIET_S, *, begin: bool = True) -> None:
        self.switch, self.quiet_s = switch, quiet_s
        self.shape, self.compiled, self.failed = -1, 0, ""
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._wanted.set()
        self._before = switch.store.on_shape
        switch.store.on_shape = self._wanted.set
        self._thread = threading.Thread(target=self._work, name="wirespeed specialiser", daemon=True)
        if begin:
            self.begin()

    def begin(self) -> None:
        """Begin, once."""
        self._thread.start()

    @property
    def current(self) -> bool:
        """Whether workers have code for the shape that the rules have now."""
        shape: int = self.switch.store.live.shape
        return self.shape == shape

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            while not self._closed.is_set() and self._wanted.is_set():
                self._wanted.clear()
                self._closed.wait(self.quiet_s)
            if self._closed.is_set():
                return
            if not self.current:
                self._specialise()

    def _specialise(self) -> None:
        shape = self.switch.store.live.shape
        try:
            self.switch.specialise()
        except Exception as error:  # the generic code serves, so a switch goes on without
            if self._closed.is_set():
                return
            self.failed = f"{type(error).__name__}: {error}"
            log.warning("no specialised code for these rules: %s", self.failed)
        else:
            self.compiled += 1
            self.failed = ""
        self.shape = shape

    def close(self) -> None:
        """Compile no more; hardly waits for what is being compiled.  Closing twice is harmless.

        A compilation cannot be stopped.  What comes of it reaches no worker of a run that is over, so it may go on
        behind a switch that is closed; but the interpreter must not end under it, and waits for it then.
        """
        self._closed.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)
            if self._thread.is_alive():
                atexit.register(self._thread.join)
        self.switch.store.on_shape = self._before

    def __enter__(self) -> "Specialiser":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
