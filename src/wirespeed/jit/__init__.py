"""The only code that knows numba's and LLVM's inside: layouts, atomics, intrinsics, kernels, libc."""
