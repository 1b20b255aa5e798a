#!/usr/bin/env python3
"""kill_test.py BINARY: a pack that is killed and run again produces the same bytes as an undisturbed one.

Packing the bundled model with 1 and 2 jobs, twice each, must give the same directory. Then packs are killed
with SIGKILL at 20 seeded random moments, some of them several times, and run again. They must give the same
directory, without leftover files.
"""

import hashlib
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "models" / "tern"
KILLS = 20


def tree(folder: pathlib.Path) -> dict[str, str]:
    """Every file and directory below `folder`, with the hash of its contents."""
    def hash_of(path: pathlib.Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    return {path.relative_to(folder).as_posix(): hash_of(path) for path in sorted(folder.rglob("*"))}


def start(binary: str, destination: pathlib.Path, jobs: int) -> "subprocess.Popen[str]":
    return subprocess.Popen([binary, "pack", str(SOURCE), str(destination), "--jobs", str(jobs)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pack(binary: str, destination: pathlib.Path, jobs: int) -> float:
    """Runs a whole pack; returns its seconds."""
    began = time.monotonic()
    with start(binary, destination, jobs) as child:
        _, message = child.communicate()
    assert child.returncode == 0, f"exit {child.returncode}: {message}"
    return time.monotonic() - began


def bytes_in(folder: pathlib.Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # renamed meanwhile
            pass
    return total


def kill_at(binary: str, destination: pathlib.Path, jobs: int, most_seconds: float, most_bytes: int) -> bool:
    """Kills a pack after `most_seconds` or `most_bytes` written. True if it was still running."""
    deadline = time.monotonic() + most_seconds
    with start(binary, destination, jobs) as child:
        while child.poll() is None and time.monotonic() < deadline and bytes_in(destination) < most_bytes:
            time.sleep(0.001)
        running = child.poll() is None
        child.kill()
        child.communicate()
    return running


def state_of(destination: pathlib.Path) -> str:
    if not destination.exists():
        return "nothing"
    names = {path.name for path in destination.rglob("*")}
    if "manifest.json" in names:
        return "manifest"
    return "whole files" if any(name.endswith(".bin") for name in names) else "beginnings"


def compare(found: dict[str, str], expected: dict[str, str], what: str) -> None:
    assert set(found) == set(expected), f"{what}: other files: {sorted(set(found) ^ set(expected))}"
    differing = [name for name in expected if found[name] != expected[name]]
    assert not differing, f"{what}: other bytes in {differing}"


def check(binary: str, scratch: pathlib.Path) -> str:
    expected, seconds = {}, 0.0
    for jobs in (1, 2, 1, 2):
        destination = scratch / "whole"
        seconds = max(seconds, pack(binary, destination, jobs))
        found = tree(destination)
        if expected:
            compare(found, expected, f"{jobs} jobs")
        expected, total = found, bytes_in(destination)
        shutil.rmtree(destination)
    assert not [name for name in expected if name.endswith(".partial") or "journal" in name], "leftovers"

    dice = random.Random(20)
    landed, states = 0, {}
    while landed < KILLS:
        destination, jobs = scratch / "killed", dice.choice((1, 2))
        times = dice.choice((1, 1, 2, 3))
        for _ in range(times):
            # Mostly by bytes written; sometimes by time, to hit moments before the first byte.
            progress = dice.uniform(0, 1.02)
            by_time = dice.uniform(0, 0.3) * seconds if dice.random() < 0.25 else 20 * seconds + 5
            if not kill_at(binary, destination, jobs, by_time, max(1, int(progress * total))):
                break
            landed += 1
            state = state_of(destination)
            states[state] = states.get(state, 0) + 1
            if state == "manifest":
                break
        if (destination / "manifest.json").exists() and not (destination / "pack.journal").exists():
            compare(tree(destination), expected, "a pack that ended before it was killed")
        else:
            pack(binary, destination, dice.choice((1, 2)))
            compare(tree(destination), expected, "a pack that was killed and run again")
        if landed % 5 == 0 or landed >= KILLS:
            command = [binary, "verify", destination]
            child = subprocess.run(command, capture_output=True, text=True, check=False)
            assert child.returncode == 0 and "sound" in child.stdout, f"verify says {child.stderr}"
        shutil.rmtree(destination)
    assert states.get("whole files", 0) >= 5, f"kills are not spread: {states}"
    return f"{landed} kills ({', '.join(f'{count} left {state}' for state, count in sorted(states.items()))})"


def the_moment_between_manifest_and_journal(binary: str, scratch: pathlib.Path) -> str:
    """A pack that is killed between writing its manifest and removing its journal can be finished too."""
    destination, other = scratch / "late", scratch / "other"
    pack(binary, destination, 1)
    expected = tree(destination)
    kill_at(binary, other, 1, 60, 30_000_000)
    shutil.copy(other / "pack.journal", destination)
    pack(binary, destination, 2)
    compare(tree(destination), expected, "a pack with a journal that is left over")
    with start(binary, destination, 1) as child:
        output, message = child.communicate()
    assert child.returncode == 0 and "already packed" in output, f"packing it again fails: {message}"
    compare(tree(destination), expected, "a finished model that was packed again")
    return "finished"


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: kill_test.py BINARY", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory(prefix="kill-test-") as name:
        for test in (check, the_moment_between_manifest_and_journal):
            try:
                print(f"ok      {test.__name__}: {test(sys.argv[1], pathlib.Path(name))}", flush=True)
            except AssertionError as problem:
                failed += 1
                print(f"FAILED  {test.__name__}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
