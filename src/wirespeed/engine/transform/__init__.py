"""Stages that make packets out of others: segments, fragments, and both ways back."""

from wirespeed.engine.transform.coalesce import coalesce
from wirespeed.engine.transform.fragment import fragment
from wirespeed.engine.transform.reassemble import reassemble
from wirespeed.engine.transform.segment import segment

__all__ = ["coalesce", "fragment", "reassemble", "segment"]
