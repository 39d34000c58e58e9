"""The ``wirespeed`` command line: one module of this package for each command, imported when it is named.

A command's module has ``configure(parser)`` and ``main(arguments) -> exit code``.  Nothing here imports numba, NumPy
or rich, and a command imports them when it runs, so that every ``--help`` answers at once.

Exit codes: 0 when the command did what was asked (a run that Ctrl-C or SIGTERM ended has done so, as with tcpdump);
1 when a run's books do not balance, or ``doctor`` found something in the way; 2 when the command could not do it: one
sentence on standard error says why, after Python's traceback with ``WIRESPEED_TRACE=1``; 130 when Ctrl-C came before a
run had begun, or a second time; or when a signal broke off the search of ``throughput``.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from wirespeed.cli.parser import Parser, did_you_mean
from wirespeed.errors import GraphError, WirespeedError

COMMANDS = {
    "run": "send packets through a chain of ports and functions",
    "demo": "show the main job on a capture that comes with wirespeed",
    "distribute": "spread packets over workers, each flow on one of them at a time",
    "throughput": "find the rate at which a device or a function loses nothing",
    "filter": "show what a filter is compiled to, or count what it matches in captures",
    "switch": "run a virtual switch between ports, by rules that may be changed meanwhile",
    "flow": "add, change, remove or print the rules of a running switch",
    "group": "add, change, remove or print its groups",
    "meter": "add, change, remove or print its meters",
    "fdb": "show or change what it has learned of MAC addresses",
    "port": "show or change its ports",
    "stats": "print what it counts: ports, tables, caches, drops by reason",
    "trace": "tell step by step what happens to a packet in it, and why",
    "ports": "list the kinds of ports, what each can do here, and the interfaces",
    "doctor": "say what this machine offers, and what is in the way",
    "warm": "compile ahead, into the cache that later runs read",
    "layouts": "print every memory layout, field by field",
}
EPILOG = "`wirespeed COMMAND --help` tells more of one command. Try first: wirespeed demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (or the process's arguments) names; return the exit code."""
    try:
        code = command(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:  # it is None when the process was started with it closed
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone (`wirespeed layouts | head`).  Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (WirespeedError, OSError) as error:
        if os.environ.get("WIRESPEED_TRACE") == "1":
            traceback.print_exc()
        print(f"wirespeed: {sentence(error)}", file=sys.stderr)
        return 2


def command(argv: list[str]) -> int:
    """Find the command's module, have it read its arguments, and run it."""
    name = argv[0] if argv else "--help"
    if name in COMMANDS:
        module = importlib.import_module(f"wirespeed.cli.{name}")
        parser = Parser(f"wirespeed {name}", COMMANDS[name])
        module.configure(parser)
        code: int = module.main(parser.parse_intermixed_args(argv[1:]))
        return code
    if not name.startswith("-"):
        raise GraphError(
            f"there is no command {name!r}{did_you_mean(name, COMMANDS)}; the commands are {', '.join(COMMANDS)}"
        )
    parser = Parser("wirespeed", "Line-rate packet processing in Python.", usage="wirespeed COMMAND ...", epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_argument_group("commands")
    for word, summary in COMMANDS.items():
        commands.add_argument(word, help=summary, nargs="?")
    if parser.parse_args(argv or ["--help"]).version:
        from importlib.metadata import version

        print(f"wirespeed {version('wirespeed')}")
    return 0


def sentence(error: Exception) -> str:
    """What an error says, in a user's words: for the system's own, the file and the reason without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
