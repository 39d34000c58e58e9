"""The memory shape of an input, which those that make inputs and those that take them share.

The kernel cache follows imports inside the package only: after a change here, delete it (``wirespeed doctor`` says
where it is).
"""

from wirespeed.jit.layout import layout

CAPACITY = 4080
Input = layout("FuzzInput", [("size", "u4"), ("link", "u4"), ("number", "i8"), ("bytes", "u1", CAPACITY)])
INPUT = Input.size
assert INPUT == 4096
