"""Compiles kernels: parts for those that kernels call, machine code for those that Python or the engine calls.

Theory of operation
-------------------
Each kernel is a dispatcher of numba's, of which two methods are ours: the one by which a caller's types are found, which
asks for a part (:mod:`wirespeed.jit.part`), and the one by which Python asks for a function, which asks for machine
code.  Both are kept on disk, apart: who only calls a kernel loads no bitcode.  Machine code is kept as an object file
with the names in it; all else that numba keeps beside it is for linking, which parts are for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
from numba.core import compiler, errors, sigutils, types, typing
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment
from numba.core.types.functions import BaseFunction

from wirespeed.jit import part
from wirespeed.jit.cache import KernelCache
from wirespeed.jit.interrupt import deferred

_ENVIRONMENT = "_ZN08NumbaEnv"


# What our own kernels have no need of: closures, with blocks, loops over mixed tuples, expressions of whole arrays,
# functions that are inlined as Python, and what helps to read a compilation.
_NOT_NEEDED = {
    "WithLifting", "InlineClosureLikes", "RewriteDynamicRaises", "MakeFunctionToJitFunction", "InlineInlinables",
    "LiteralUnroll", "LiteralPropagationSubPipelinePass", "InlineOverloads", "NopythonRewrites", "DumpParforDiagnostics",
}  # fmt: skip


class _Short(compiler.CompilerBase):
    """numba's passes over a kernel, without those that find nothing in ours."""

    def define_pipelines(self) -> list[Any]:
        manager = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(kind, text) for kind, text in manager.passes if kind.__name__ not in _NOT_NEEDED]
        return [manager]


# numba times every call into LLVM by an event, which nobody here listens to, and which costs more than many of them.
for _callbacks in list(getattr(llvm.ffi.lib._lock, "_cblist", ())):
    llvm.ffi.unregister_lock_callback(*_callbacks)


def _remembering(find: Any) -> Any:
    """numba's search for what an operator gives for numbers, remembered: it tries dozens of rules each time."""

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or getattr(self.typing_key, "__module__", None) != "_operator":
            return find(self, context, args, kws)
        known = self.__dict__.setdefault("_wirespeed_known", {})
        found = known.get(args)
        if found is None:
            found = find(self, context, args, kws)
            if all(isinstance(arg, _NUMBERS) for arg in args):
                known[args] = found
        return found

    return get_call_type


_NUMBERS = (types.Integer, types.Boolean, types.IntegerLiteral, types.BooleanLiteral)
BaseFunction.get_call_type = _remembering(BaseFunction.get_call_type)  # type: ignore[method-assign]


class Code:
    """Machine code of a kernel for some types of arguments: what Python calls, and where it begins."""

    objectmode = False  # numba asks

    def __init__(self, dispatcher: Any, library: Any, result: Any, size: int, environments: list[Any]) -> None:
        self.library, self.size = library, size
        self.environments = environments  # numba holds them weakly
        for environment in environments:
            if library.codegen._engine.is_symbol_defined(environment.env_name):
                library.codegen.set_env(environment.env_name, environment)
        self.fndesc, self.signature = result.fndesc, result.signature
        self.entry_point = dispatcher.targetctx.get_executable(library, result.fndesc, result.environment)

    @property
    def address(self) -> int:
        """Where the function itself begins, in the convention of numba's own calls."""
        return int(self.library.get_pointer_to_function(self.fndesc.llvm_func_name))


class Compiling:
    """How one kernel is compiled; ``kept`` is its disk cache, ``told(dispatcher)`` a context manager round each compilation."""

    def __init__(self, dispatcher: Any, kept: KernelCache | None, told: Callable[[Any], Any]) -> None:
        self.dispatcher, self.cache, self._told = dispatcher, kept, told
        self.parts: dict[Any, Any] = {}
        self.codes: dict[Any, Code] = {}
        dispatcher.get_call_template = self.get_call_template
        dispatcher.compile = self.compile
        dispatcher.wirespeed = self

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What a kernel that calls this one needs to know; as numba's, with a part in place of machine code."""
        signature, folded = self.dispatcher._compiler.fold_argument_types(args, kws)
        if self.dispatcher._can_compile:
            with deferred, global_compiler_lock:
                self.part(tuple(folded), None)
        name = self.dispatcher.py_func.__name__
        template = typing.make_concrete_template(
            f"CallTemplate({name})", key=name, signatures=self.dispatcher.nopython_signatures
        )
        return template, signature, folded, {}

    def compile(self, sig: Any) -> Any:
        """What Python calls, for a signature."""
        return self.code(sig).entry_point

    def code(self, sig: Any) -> Code:
        """Machine code for a signature: what there is, what the cache has, or it is made now."""
        args, returned = sigutils.normalize_signature(sig)
        with deferred, global_compiler_lock:
            args = tuple(args)
            if args not in self.codes:
                d = self.dispatcher
                made = self._load_code(args, returned)
                if made is None:
                    with self._told(d):
                        made = self._make_code(self.part(args, returned, told=True))
                    self._save_code(args, returned, made)
                self.codes[args] = made
                d._insert([a._code for a in args], made.entry_point, False)
                self._register(args)
        return self.codes[args]

    def is_kept(self, sig: Any) -> bool:
        """Whether machine code for a signature is there, or in the cache."""
        args, returned = sigutils.normalize_signature(sig)
        return tuple(args) in self.codes or self._kept(("code", tuple(args), returned)) is not None

    def part(self, args: Any, returned: Any, told: bool = False) -> Any:
        """The compilation of a kernel's own code: what there is, what the cache has, or it is made now."""
        if args not in self.parts:
            made = self._load_part(args, returned)
            if made is None:
                with self._told(self.dispatcher) if not told else _nothing():
                    made = self._make_part(args, returned)
                self._save_part(args, returned, made)
            self.parts[args] = made
            self._register(args)
        return self.parts[args]

    def _register(self, args: Any) -> None:
        """Have numba know what there is, under the one key by which callers ask."""
        d, made, code = self.dispatcher, self.parts.get(args), self.codes.get(args)
        if made is None:
            d.overloads[args] = code
            return
        entry = code.entry_point if code else object()
        self.parts[args] = d.overloads[args] = made._replace(entry_point=entry)
        d.targetctx.insert_user_function(entry, made.fndesc, [made.library])

    def _make_part(self, args: Any, returned: Any) -> Any:
        d = self.dispatcher
        flags = compiler.Flags()
        d.targetdescr.options.parse_as_flags(flags, d.targetoptions)
        flags.no_compile = flags.no_cpython_wrapper = True
        d.targetctx.refresh()
        codegen = d.targetctx.codegen()
        library = part.Part(codegen, d.py_func.__qualname__)
        with d._compiling_counter:
            try:
                return compiler.compile_extra(
                    d.typingctx, d.targetctx, d.py_func, args, returned, flags, d.locals, library=library,
                    pipeline_class=_Short if (d.py_func.__module__ or "").startswith("wirespeed") else d._compiler.pipeline_class,
                )  # fmt: skip
            except errors.ForceLiteralArg as error:
                raise error.bind_fold_arguments(
                    lambda args, kws: d._compiler.fold_argument_types(args, kws)[1]
                ) from None

    def _make_code(self, made: Any) -> Code:
        d, context = self.dispatcher, self.dispatcher.targetctx
        library = context.codegen().create_library(made.fndesc.qualname)
        library.enable_object_caching()
        library._final_module.link_in(made.library._final_module, preserve=True)
        made.library.link_into(library._final_module)
        context.create_cpython_wrapper(
            library, made.fndesc, made.environment, made.call_helper, d.targetoptions.get("nogil", False)
        )
        library.finalize()
        names = [g.name for g in library._final_module.global_variables if g.name.startswith(_ENVIRONMENT)]
        found = [e for e in map(lookup_environment, names) if e is not None]
        return Code(d, library, made, _code_bytes(library._compiled_object), found)

    def _save_part(self, args: Any, returned: Any, made: Any) -> None:
        if made.library.has_dynamic_globals:
            return
        made.fndesc.typemap = made.fndesc.calltypes = None
        try:
            digest = made.library.digest
        except OSError:  # a full disk: it serves this process
            return
        kept = digest, made.fndesc, made.environment, made.signature, made.reload_init
        self._keep(("part", args, returned), kept)

    def _load_part(self, args: Any, returned: Any) -> Any:
        d = self.dispatcher
        kept = self._kept(("part", args, returned))
        if kept is None:
            return None
        digest, fndesc, environment, signature, reload_init = kept
        try:
            library = part.load(digest, d.targetctx.codegen())
        except OSError:
            return None
        for function in reload_init:
            function()
        return compiler.compile_result(
            target_context=d.targetctx, typing_context=d.typingctx, library=library, environment=environment,
            fndesc=fndesc, signature=signature, objectmode=False, reload_init=reload_init,
        )  # fmt: skip

    def _save_code(self, args: Any, returned: Any, code: Code) -> None:
        library = code.library
        if self.parts[args].library.has_dynamic_globals:
            return
        names = [f.name for f in library._final_module.functions if not f.is_declaration]
        names += [g.name for g in library._final_module.global_variables if not g.is_declaration]
        environments = [(e, list(e.consts)) for e in code.environments if e.can_cache()]
        made = self.parts[args]
        kept = (
            library._get_compiled_object(), names, made.fndesc, (made.environment, list(made.environment.consts)),
            made.signature, made.reload_init, environments, code.size,
        )  # fmt: skip
        self._keep(("code", args, returned), kept)

    def _keep(self, key: Any, kept: Any) -> None:
        if self.cache is not None:
            self.cache.save(key, kept, self.dispatcher.targetctx.codegen())

    def _kept(self, key: Any) -> Any:
        return None if self.cache is None else self.cache.load(key, self.dispatcher.targetctx)

    def _load_code(self, args: Any, returned: Any) -> Code | None:
        d = self.dispatcher
        kept = self._kept(("code", args, returned))
        if kept is None:
            return None
        compiled, names, fndesc, own, signature, reload_init, environments, size = kept
        for function in reload_init:
            function()
        for environment, consts in [own, *environments]:
            if len(environment.consts) < len(consts):
                environment.consts[:] = consts
        library = d.targetctx.codegen().create_library(fndesc.qualname)
        library.enable_object_caching()
        library._set_compiled_object(compiled)
        library.codegen._engine._defined_symbols.update(names)
        library._finalize_final_module()
        result = compiler.compile_result(
            target_context=d.targetctx, typing_context=d.typingctx, library=library, environment=own[0],
            fndesc=fndesc, signature=signature, objectmode=False, reload_init=reload_init,
        )  # fmt: skip
        return Code(d, library, result, size, [e for e, _consts in environments])


_SECTIONS = (b".text", b".ltext")  # where LLVM puts code, in the small and in the large code model


def _code_bytes(compiled: bytes) -> int:
    """Bytes of machine code in an object file."""
    sections = llvm.ObjectFileRef.from_data(compiled).sections()
    return sum(section.size() for section in sections if section.name() in _SECTIONS)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
