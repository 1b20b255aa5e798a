"""A terminal of 100 columns and 30 rows with a shell, in tmux: takes keys, returns screens."""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import time
from typing import Callable

from sandbox import PATIENCE_S

COLUMNS, ROWS = 100, 30
SHELL_PROMPT = "shell$"


class Pane:
    """One tmux server, ended by the `with` block. Waits by polling, with a generous limit."""

    numbers = itertools.count()

    def __init__(self, environment: dict[str, str], folder: pathlib.Path) -> None:
        if shutil.which("tmux") is None:
            raise SystemExit("tmux is not installed: tools/bootstrap.sh installs it")
        self.folder = folder
        self.environment = environment | {"TMUX_TMPDIR": str(folder)}
        # A unique name: an earlier server may still be ending.
        self.socket = f"moeflux-test-{os.getpid()}-{next(Pane.numbers)}"

    def __enter__(self) -> "Pane":
        self.tmux("new-session", "-d", "-x", COLUMNS, "-y", ROWS, "/bin/sh")
        try:
            self.wait("a shell", lambda screen: screen != "")
            self.type(f"PS1='{SHELL_PROMPT} '; clear")  # some shells do not take it from the environment
            self.press("Enter")
            self.wait("the shell's prompt", lambda screen: screen == SHELL_PROMPT)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.tmux("kill-server", check=False)

    def tmux(self, *arguments: object, data: str = "", check: bool = True) -> str:
        command = ["tmux", "-u", "-L", self.socket, "-f", "/dev/null", *map(str, arguments)]
        child = subprocess.run(command, input=data.encode(), capture_output=True, check=False, timeout=PATIENCE_S,
                               cwd=self.folder, env=self.environment)
        if check and child.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {child.stderr.decode().strip()}")
        return child.stdout.decode("utf-8", "replace")

    def shell(self) -> int:
        """The id of its process."""
        return int(self.tmux("display-message", "-p", "#{pane_pid}"))

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Presses keys by tmux's names: Enter, Left, C-c."""
        self.tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Pastes as a terminal does: in brackets if the program asked for them."""
        self.tmux("load-buffer", "-", data=text)
        self.tmux("paste-buffer", "-p", "-r")

    def screen(self) -> str:
        """The visible text. Lines that the terminal wrapped are joined; trailing spaces are removed."""
        lines = self.tmux("capture-pane", "-p", "-J").split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip("\n")

    def styled(self) -> str:
        """The same with the escape sequences of colors and weights."""
        return self.tmux("capture-pane", "-p", "-J", "-e")

    def wait(self, what: str, is_so: Callable[[str], bool], patience_s: float = PATIENCE_S) -> str:
        end = time.monotonic() + patience_s
        while True:
            screen = self.screen()
            if is_so(screen):
                return screen
            if time.monotonic() > end:
                raise AssertionError(f"waited {patience_s} s for {what}; the screen:\n{screen}\n")
            time.sleep(0.05)

    def wait_for(self, pattern: str) -> str:
        return self.wait(repr(pattern), lambda screen: re.search(pattern, screen, re.M) is not None)
