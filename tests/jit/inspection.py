"""Looks into what LLVM made of a kernel."""

from types import FunctionType

from wirespeed.jit.kernel import kernel


def fresh(dispatcher, *, inline=False):
    """The same kernel, to be compiled in this process: what came from the disk cache cannot be looked into."""
    function = dispatcher.py_func
    nowhere = function.__code__.replace(co_filename="<fresh>")  # what has no file is not cached
    again = FunctionType(nowhere, function.__globals__, function.__name__, function.__defaults__)
    return kernel(again, inline=inline)


def intermediate(dispatcher):
    """The LLVM code of a kernel that was compiled in this process, with all that it calls."""
    (code,) = dispatcher.wirespeed.codes.values()
    text = code.library.get_llvm_str()
    assert "define" in text
    return text
