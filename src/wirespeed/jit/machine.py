"""Which processor kernels are compiled for, and which of its instructions we use.

``WIRESPEED_PORTABLE=1`` turns every machine-specific intrinsic into its portable twin; ``WIRESPEED_DEBUG=1`` compiles
the checks of debug mode in.  Both belong to the kernel cache's path, for numba's key does not have them.
"""

import os
import platform

import llvmlite.binding as llvm

ARCHITECTURE = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
PORTABLE = os.environ.get("WIRESPEED_PORTABLE", "") == "1"
DEBUG = os.environ.get("WIRESPEED_DEBUG", "") == "1"
X86 = ARCHITECTURE == "x86_64" and not PORTABLE
ARM = ARCHITECTURE == "aarch64" and not PORTABLE


def cpu() -> str:
    """LLVM's name of this machine's processor, such as ``znver4``."""
    return str(llvm.get_host_cpu_name())


def has(feature: str) -> bool:
    """Whether the processor has ``feature``, by LLVM's name for it (``sse4.2``, ``crc``), and we may use it."""
    return not PORTABLE and bool(llvm.get_host_cpu_features().get(feature, False))
