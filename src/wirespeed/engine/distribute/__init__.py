"""Spreading packets over workers so that a flow is never on two of them at once: ``ws.distribute``."""

from wirespeed.engine.distribute.element import distribute

__all__ = ["distribute"]
