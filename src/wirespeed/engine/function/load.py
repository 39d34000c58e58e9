"""Loads the stage of a user's function from its generated module."""

from wirespeed.engine.function import body
from wirespeed.engine.function.unit import PREFIX
from wirespeed.jit import generated
from wirespeed.jit.kernel import Stage


def load(source: str, name: str) -> Stage:
    """The stage of a generated module's text, from the module as this process has it, or from its file."""
    made: Stage = getattr(generated.load(source, name, body.__file__, "functions"), f"{PREFIX}stage_{name}")
    return made
