"""Stages that make packets out of others: segments, fragments, and both ways back."""

from wirespeed.engine.transform.fragment import fragment
from wirespeed.engine.transform.segment import segment

__all__ = ["fragment", "segment"]
