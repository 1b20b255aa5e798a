#!/usr/bin/env python3
"""Runs `moeflux inspect` on hostile models and checks that it fails safely.

    hostile_test.py --program build/dev/bin/moeflux [-v] [--only TEXT] [--memory-mb N] [--cpu-seconds N]
    hostile_test.py --program ... --docs docs/formats/hostile.md        also checks that the file is current
    hostile_test.py --program ... --write-docs docs/formats/hostile.md  writes it from the actual output

For every input the process must exit by itself, with the exit code of the table, within the limits on CPU
time and memory. A failure prints one line "moeflux: ..." that states the facts of the table, and nothing
else. No control character reaches the terminal. The cases are in cases.py.
"""

import argparse
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass

from cases import TABLE, Case, Fact

WALL_SECONDS = 120  # against hangs only
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass
class Outcome:
    exit_code: int  # negative: the signal
    stdout: bytes
    stderr: bytes
    memory_mb: float
    cpu_seconds: float
    hung: bool


def build(case: Case, folder: pathlib.Path) -> pathlib.Path:
    """Makes the input in a separate process: a child inherits the peak memory of its parent, so this process
    must stay small."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            path = case.build(folder)
            os.write(writer, os.fsencode(folder if path is None else path))
            status = 0
        except Exception:  # noqa: BLE001: reported by the parent as a failure of the case
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        path = pipe.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("the input could not be made")
    return pathlib.Path(os.fsdecode(path))


def run(command: list, scratch: pathlib.Path, cpu_seconds: int) -> Outcome:
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with open(scratch / "stdout", "w+b") as stdout, open(scratch / "stderr", "w+b") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, preexec_fn=limit
        )
        deadline = time.monotonic() + WALL_SECONDS
        hung = False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid != 0:
                break
            if time.monotonic() > deadline and not hung:
                hung = True
                process.kill()
            time.sleep(0.002)
        process.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        return Outcome(process.returncode, stdout.read(), stderr.read(), usage.ru_maxrss / 1024,
                       usage.ru_utime + usage.ru_stime, hung)


def run_within(command: list, scratch: pathlib.Path, cpu_seconds: int) -> Outcome:
    """Retries twice after exceeding the CPU limit, because host load can cause one overrun."""
    for _ in range(3):
        outcome = run(command, scratch, cpu_seconds)
        if outcome.exit_code != -signal.SIGXCPU:
            break
    return outcome


def states(text: str, fact: Fact) -> bool:
    """Whether the text states the fact: matches the pattern, or contains it as whole words."""
    if isinstance(fact, re.Pattern):
        return fact.search(text) is not None
    before = r"(?<!\w)" if re.match(r"\w", fact) else ""
    after = r"(?!\w)" if re.search(r"\w$", fact) else ""
    return re.search(before + re.escape(fact) + after, text) is not None


def problems(case: Case, outcome: Outcome, memory_mb: int) -> list[str]:
    """What is wrong with an outcome; empty if it is as the table says."""
    found = []
    try:
        stdout, stderr = outcome.stdout.decode(), outcome.stderr.decode()
    except UnicodeDecodeError:
        return ["the output is not UTF-8"]
    if outcome.hung:
        found.append(f"did not end within {WALL_SECONDS} s")
    elif outcome.exit_code < 0:
        found.append(f"was killed by {signal.Signals(-outcome.exit_code).name}")
    elif outcome.exit_code != case.exit_code:
        found.append(f"exit code {outcome.exit_code}, expected {case.exit_code}")
    if memory_mb and outcome.memory_mb > memory_mb:
        found.append(f"took {outcome.memory_mb:.0f} MB of memory, allowed are {memory_mb}")
    if CONTROL.search(stdout + stderr):
        found.append("control characters in the output")
    if case.exit_code == 0:
        if stderr:
            found.append("success with text on standard error")
        found += [f"the page does not state {fact!r}" for fact in case.facts if not states(stdout, fact)]
    else:
        if stdout:
            found.append("a failure with text on standard output")
        if not re.fullmatch(r"moeflux: [^\n]+\n", stderr):
            found.append("standard error is not one line 'moeflux: ...'")
        elif len(stderr) > 1000:
            found.append(f"a message of {len(stderr)} characters")
        found += [f"the message does not state {fact!r}" for fact in case.facts if not states(stderr, fact)]
    return found


def shortened(outcome: Outcome, folder: pathlib.Path) -> str:
    """The relevant line of the output, without the paths of this machine."""
    if outcome.exit_code == 0:
        lines = [line for line in outcome.stdout.decode().splitlines() if line.startswith("experts")]
        return re.sub(r"\s+", " ", lines[0]) if lines else ""
    return outcome.stderr.decode().strip().replace(str(folder), "MODEL")


def document(rows: dict) -> str:
    total = sum(len(section) for section in rows.values())
    lines = [
        "# Hostile inputs",
        "",
        "<!-- Written by tests/hostile/hostile_test.py --write-docs, which also compares it. -->",
        "",
        f"This page lists {total} models that are invalid, or valid but enormous, and what",
        "`moeflux inspect` prints for each of them. Whatever sizes a model claims, `inspect` takes at most",
        "100 MB of memory and a second or two of CPU time (the test stops it after 10 s), and it never",
        "crashes. A failure prints one line to standard error and nothing to standard output. The exit code",
        "is 0 for success, 3 for a model that is missing or invalid, and 5 for an I/O error. `MODEL` stands",
        "for the folder that was inspected. If a model is accepted, the table shows the output line that",
        "describes its experts.",
    ]
    for section, cases in rows.items():
        lines += ["", f"## {section}", "", "| input | exit | says |", "|---|---|---|"]
        for name, code, says in cases:
            fence = "``" if "`" in says else "`"
            lines.append(f"| {name} | {code} | {fence}{says.replace('|', chr(92) + '|')}{fence} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--memory-mb", type=int, default=100, help="0: no limit")
    parser.add_argument("--cpu-seconds", type=int, default=10)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--docs", type=pathlib.Path)
    parser.add_argument("--write-docs", type=pathlib.Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()

    passed = failed = 0
    worst_memory, worst_cpu = (0.0, ""), (0.0, "")
    rows: dict = {}
    for section, cases in TABLE.items():
        for case in cases:
            if arguments.only not in case.name:
                continue
            with tempfile.TemporaryDirectory(prefix="hostile-") as name:
                scratch = pathlib.Path(name)
                folder = scratch / "model"
                folder.mkdir()
                path = build(case, folder)
                command = [arguments.program, "inspect", path] + (["--check"] if case.check else [])
                outcome = run_within(command, scratch, arguments.cpu_seconds)
                wrong = problems(case, outcome, arguments.memory_mb)
                says = shortened(outcome, folder)
                rows.setdefault(section, []).append((case.name, outcome.exit_code, says))
                shutil.rmtree(folder, ignore_errors=True)
            passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
            worst_memory = max(worst_memory, (outcome.memory_mb, case.name))
            worst_cpu = max(worst_cpu, (outcome.cpu_seconds, case.name))
            if wrong or arguments.verbose:
                cost = f"{outcome.memory_mb:5.0f} MB {outcome.cpu_seconds:5.2f} s"
                print(f"{'FAIL' if wrong else 'ok  '} {cost}  {case.name}: {says[:300]}")
                for problem in wrong:
                    print(f"     {problem}")
                sys.stdout.flush()

    if arguments.write_docs and not failed:
        arguments.write_docs.write_text(document(rows), encoding="utf-8")
    if arguments.docs and not failed and arguments.docs.read_text(encoding="utf-8") != document(rows):
        print(f"FAIL {arguments.docs} is out of date: write it again with --write-docs")
        failed += 1
    print(f"most memory {worst_memory[0]:.0f} MB: {worst_memory[1]}")
    print(f"most processor time {worst_cpu[0]:.2f} s: {worst_cpu[1]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
