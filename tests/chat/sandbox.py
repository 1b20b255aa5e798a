"""An environment in which `moeflux` runs as for a new user.

Its caches, its history and its home are in one folder that goes away; the tester's environment does not reach
it.
"""

import os
import pathlib
import subprocess
from typing import Callable, Iterable, Optional, Union

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERN = ROOT / "models" / "tern"
PATIENCE_S = 120

Argument = Union[str, int, float, pathlib.Path]


class Sandbox:
    def __init__(self, program: str, folder: pathlib.Path) -> None:
        self.program = pathlib.Path(program).resolve()
        self.folder = folder
        for name in ("home", "cache", "state"):
            (folder / name).mkdir(exist_ok=True)
        # Sanitizers read variables; without PATH there is no shell and no tmux.
        self.environment = {name: value for name, value in os.environ.items()
                            if name == "PATH" or name.endswith("SAN_OPTIONS")}
        self.environment |= {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache"),
                             "XDG_STATE_HOME": str(folder / "state"), "LC_ALL": "C.UTF-8"}

    def run(self, *arguments: Argument, stdin: Union[str, bytes] = b"", code: int = 0,
            environment: Optional[dict[str, str]] = None) -> "subprocess.CompletedProcess[str]":
        """Runs the program and expects exit code `code`. Output and errors are text that keeps invalid
        bytes."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        command = [str(self.program), *map(str, arguments)]
        child = subprocess.run(command, input=data, capture_output=True, check=False, timeout=PATIENCE_S,
                               cwd=self.folder, env=self.environment | (environment or {}))
        out, err = (stream.decode("utf-8", "surrogateescape") for stream in (child.stdout, child.stderr))
        words = " ".join(map(str, arguments))
        assert child.returncode == code, f"{words}: exits with {child.returncode}, not {code}: {err.strip()[-600:]}"
        return subprocess.CompletedProcess(command, child.returncode, out, err)

    def file(self, name: str, text: str) -> pathlib.Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def pack(self, source: pathlib.Path) -> pathlib.Path:
        packed = self.folder / source.name
        self.run("pack", source, packed)
        return packed


def run_checks(checks: Iterable[tuple[str, Callable[[], object]]]) -> int:
    """Runs every check and prints a line for each. Returns the number of failures."""
    failed = 0
    for name, check in checks:
        try:
            check()
            print(f"ok      {name}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as problem:
            failed += 1
            print(f"FAILED  {name}: {problem}", flush=True)
    return failed
