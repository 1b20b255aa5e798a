#!/usr/bin/env python3
"""save_kill_test.py SAVE_LOOP MOEFLUX: a session file is whole after its writer is killed.

SAVE_LOOP saves two states to one file, alternately. It is killed with SIGKILL at 200 seeded random moments;
each time the file must be the first or the second state, in every byte. A partial file may be left next to
it, which the next writer replaces.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "goldens" / "tiny" / "qwen35moe-tiny-mlx4"
# A killed process loses nothing that it has written, so the files may be in memory, where no other fsync
# delays them.
SHARED_MEMORY = pathlib.Path("/dev/shm")
KILLS = 200
PATIENCE_S = 60


class SaveLoop:
    def __init__(self, binary: str, model: pathlib.Path, file: pathlib.Path) -> None:
        self.binary, self.model, self.file = binary, model, file

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen([self.binary, self.model, self.file],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check(self) -> str:
        """Which of the two states the file holds."""
        command = [self.binary, "--check", self.model, self.file]
        child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert child.returncode == 0, f"the file is not whole: {child.stderr.strip()}"
        return child.stdout.strip()

    def version(self) -> Optional[tuple[int, int]]:
        """Changes with every save."""
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def kill_after(loop: SaveLoop, saves: int, seconds: float) -> None:
    """Waits until some saves have happened, then a while longer."""
    deadline = time.monotonic() + PATIENCE_S
    with loop.start() as child:
        before, seen = loop.version(), 0
        while seen < saves:
            assert child.poll() is None, f"it ends by itself: {child.communicate()[1]}"
            assert time.monotonic() < deadline, "nothing is saved"
            now = loop.version()
            seen += now != before
            before = now
            time.sleep(0.0002)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:  # sleep is too coarse
            pass
        child.kill()
        output, message = child.communicate()
    assert not output and not message, f"it says {output or message}"


def seconds_of_a_save(loop: SaveLoop) -> float:
    saves = 20
    with loop.start() as child:
        times, before = [], loop.version()
        while len(times) <= saves:
            now = loop.version()
            if now != before:
                times.append(time.perf_counter())
                before = now
            time.sleep(0.0002)
            assert child.poll() is None, f"it ends by itself: {child.communicate()[1]}"
        child.kill()
        child.communicate()
    return (times[-1] - times[0]) / saves


def a_file_is_whole_whenever_its_writer_is_killed(binary: str, model: pathlib.Path,
                                                  scratch: pathlib.Path) -> str:
    loop = SaveLoop(binary, model, scratch / "session")
    of_one = seconds_of_a_save(loop)
    partial = scratch / "session.partial"
    dice = random.Random(200)
    found, halves = {"first": 0, "second": 0}, 0
    for kill in range(KILLS):
        if partial.exists() and dice.random() < 0.5:  # the leftover of a killed process may exist or not
            partial.unlink()
        kill_after(loop, dice.choice((1, 2, 3)), dice.uniform(0, 2 * of_one))
        halves += partial.exists()
        found[loop.check()] += 1
    names = sorted(os.listdir(scratch))
    assert set(names) <= {"session", "session.partial"}, f"something else is left: {names}"
    assert min(found.values()) >= KILLS // 20, f"kills are not spread: {found}"
    assert halves >= KILLS // 20, f"only {halves} kills came in the middle of a save"
    return (f"{KILLS} kills, {halves} in the middle; {found['first']} left the first state, "
            f"{found['second']} the second; a save takes {1e3 * of_one:.1f} ms")


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: save_kill_test.py SAVE_LOOP MOEFLUX", file=sys.stderr)
        return 2
    test = a_file_is_whole_whenever_its_writer_is_killed
    place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="save-kill-test-", dir=place) as name:
        model, scratch = pathlib.Path(name, "model"), pathlib.Path(name, "scratch")
        scratch.mkdir()
        command = [sys.argv[2], "pack", str(SOURCE), str(model), "--jobs", "1"]
        child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        if child.returncode != 0:
            print(f"FAILED  pack: {child.stderr}")
            return 1
        try:
            print(f"ok      {test.__name__}: {test(sys.argv[1], model, scratch)}", flush=True)
        except AssertionError as problem:
            print(f"FAILED  {test.__name__}: {problem}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
