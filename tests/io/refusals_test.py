#!/usr/bin/env python3
"""refusals_test.py REFUSING READ_WITH_DRIVE: drives work when the system refuses operations.

REFUSING installs a seccomp filter or a resource limit. READ_WITH_DRIVE reads a file with the real drives and
compares the bytes with what the standard library reads.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

REFUSING, READ_WITH_DRIVE = sys.argv[1:]
CANNOT_REFUSE = 77  # exit code of both programs
RING_REMEDIES = {
    "ENOSYS": "Linux 5.11",
    "EPERM": "kernel.io_uring_disabled",
    "EACCES": "seccomp",
    "ENOMEM": "LimitMEMLOCK",
    "EINVAL": "",
}


skipped = []  # what this machine cannot refuse


def run(*command):
    """The lines that the command printed, or None if this machine cannot refuse what it should."""
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if child.returncode == CANNOT_REFUSE:
        skipped.append(f"{' '.join(map(str, command[1:3]))}: {child.stderr.strip()}")
        return None
    assert child.returncode == 0, f"{command} ends with {child.returncode}: {child.stderr}"
    return child.stdout.splitlines()


def check(lines, description, refusals, is_equal=True):
    """`refusals` has a list of facts for each refusal."""
    if lines is None:
        return
    text = "\n".join(lines)
    assert lines[0] == description, f"expected '{description}', found:\n{text}"
    messages = [line.removeprefix("refused: ") for line in lines if line.startswith("refused: ")]
    assert len(messages) == len(refusals), f"expected {len(refusals)} refusals, found:\n{text}"
    for message, facts in zip(messages, refusals):
        for fact in facts:
            assert fact in message, f"expected '{fact}' in '{message}'"
    assert ("equal" in lines) == is_equal, f"expected equal bytes: {is_equal}; found:\n{text}"


def check_error(facts, *command):
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 1, f"{command}: {child.returncode}, {child.stderr}"
    for fact in facts:
        assert fact in child.stderr, f"{command}: expected '{fact}' in '{child.stderr}'"


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "file.bin")
        file.write_bytes(random.Random(1).randbytes(1024 * 1024 + 777))
        unrefused = run(READ_WITH_DRIVE, "uring", file)
        has_ring = unrefused[0].startswith("io_uring")
        has_buffers = unrefused[0].endswith("fixed buffers")
        has_direct = "direct reads" in unrefused[0]
        print(f"this machine: {unrefused}")
        assert "equal" in unrefused

        if has_direct:
            direct_threads = "3 threads, direct reads"
            for name, remedy in RING_REMEDIES.items():
                facts = ["io_uring is refused", name, "reading with pread", remedy]
                check(run(REFUSING, name, "uring", READ_WITH_DRIVE, "uring", file), direct_threads, [facts])
            check(run(REFUSING, "ENOSYS", "uring", READ_WITH_DRIVE, "pread", file), direct_threads, [])
        if has_ring:
            check(run(REFUSING, "EPERM", "enter", READ_WITH_DRIVE, "uring", file), "3 threads, direct reads",
                  [["io_uring is refused", "EPERM"]])
            check(run(REFUSING, "EPERM", "register", READ_WITH_DRIVE, "uring", file), "io_uring, direct reads",
                  [[f"fixed {what} are refused", "EPERM", "seccomp profile"] for what in ("files", "buffers")])
            refusals_here = sum(line.startswith("refused") for line in unrefused)
            for ring, name in ("broken-ring", "EPERM"), ("busy-ring", "EAGAIN"):
                broken = run(READ_WITH_DRIVE, ring, file)
                check(broken, unrefused[0], [[]] * refusals_here, is_equal=False)
                assert broken is None or broken[-1] == f"65 of 65 reads: {name}", broken
        if has_buffers:
            limited = run(REFUSING, "EPERM", "memlock", READ_WITH_DRIVE, "uring", file)
            if limited and limited[0] == "3 threads, direct reads":  # other processes use the limit up
                check(limited, limited[0], [["io_uring is refused", "ENOMEM", "LimitMEMLOCK"]])
            else:
                check(limited, "io_uring, direct reads",
                      [["fixed buffers are refused", "ENOMEM", "1.06 MB", "524.3 KB", "ulimit -l", "LimitMEMLOCK"]])

        refused = ["direct reads of", "file.bin", "EINVAL", "through the page cache"]
        for drive in "uring", "pread":
            check(run(REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, drive, file), "3 threads, page cache", [refused])
        check(run(REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, "buffered", file), "3 threads, page cache", [])
        check(run(REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, "sim:1G,1us", file),
              "simulated drive, 1.07 GB/s, 1 us", [])
        both = run(REFUSING, "ENOSYS", "uring", REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, "uring", file)
        check(both, "3 threads, page cache", [refused])

        check_error(["missing", "No such file"], READ_WITH_DRIVE, "uring", file.with_name("missing"))
        check_error(["cannot start a thread", "ulimit -u"], REFUSING, "EAGAIN", "threads",
                    READ_WITH_DRIVE, "buffered", file)


main()
if skipped:
    print("skipped, this machine cannot refuse:", *skipped, sep="\n  ")
    sys.exit(CANNOT_REFUSE)
