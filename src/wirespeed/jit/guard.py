"""A call after which an exception is a number: what a user's function raises ends with the packet that it was for."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic


@intrinsic
def guarded(typingctx, body, arguments):
    """Call a kernel with a tuple of arguments; (whether it raised, what it returned, which is an int64).

    This reads the status that every numba function returns, so that an exception ends here.
    """
    resolved = body.get_call_type(typingctx, tuple(arguments), {})
    if resolved.return_type != types.int64:
        raise TypingError(f"what is guarded must return an int64, and this returns {resolved.return_type}")

    def codegen(context, builder, signature, args):
        compiled = body.dispatcher.overloads[resolved.args]
        context.add_linking_libs([compiled.library])
        values = cgutils.unpack_tuple(builder, args[1])
        status, value = context.call_internal_no_propagate(builder, compiled.fndesc, resolved, values)
        value = builder.select(status.is_error, ir.IntType(64)(0), value)
        return context.make_tuple(builder, signature.return_type, [status.is_error, value])

    return types.Tuple([types.boolean, types.int64])(body, arguments), codegen
