#!/usr/bin/env python3
"""refusals_test.py REFUSING READ_WITH_DRIVE: a drive is opened and reads right whatever the system refuses to it.

REFUSING arranges the refusals: by a seccomp filter, or by a limit. The files are read by the drive's own code, and
compared with what the standard library reads.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

REFUSING, READ_WITH_DRIVE = sys.argv[1:]
CANNOT = 77
RING_CURES = {
    "ENOSYS": "Linux 5.11",
    "EPERM": "kernel.io_uring_disabled",
    "EACCES": "seccomp",
    "ENOMEM": "LimitMEMLOCK",
    "EINVAL": "",
}


def run(*command):
    """The lines that the command printed; nothing where this machine cannot play the part."""
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if child.returncode == CANNOT:
        print(f"left out, because this machine cannot do it: {' '.join(map(str, command[1:3]))}: {child.stderr.strip()}")
        return None
    assert child.returncode == 0, f"{command} ends with {child.returncode}: {child.stderr}"
    return child.stdout.splitlines()


def check(found, description, refusals, is_whole=True):
    if found is None:
        return
    text = "\n".join(found)
    assert found[0] == description, f"expected '{description}', found:\n{text}"
    said = [line.removeprefix("refused: ") for line in found if line.startswith("refused: ")]
    assert len(said) == len(refusals), f"expected {len(refusals)} refusals, found:\n{text}"
    for sentence, parts in zip(said, refusals):
        for part in parts:
            assert part in sentence, f"'{part}' is not in '{sentence}'"
    assert ("whole" in found) == is_whole, f"the bytes are not as expected:\n{text}"


def check_error(message, *command):
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 1 and message in child.stderr, f"{command}: {child.returncode}, {child.stderr}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "file.bin")
        file.write_bytes(random.Random(1).randbytes(1024 * 1024 + 777))
        as_it_is = run(READ_WITH_DRIVE, "uring", file)
        has_ring = as_it_is[0].startswith("io_uring")
        has_buffers = as_it_is[0].endswith("fixed buffers")
        has_direct = "direct reads" in as_it_is[0]
        print(f"this machine: {as_it_is}")
        assert "whole" in as_it_is

        if has_direct:
            direct_threads = "3 threads, direct reads"
            for name, cure in RING_CURES.items():
                refused = [f"io_uring is refused ({name}); reading with pread", cure]
                check(run(REFUSING, name, "uring", READ_WITH_DRIVE, "uring", file), direct_threads, [refused])
            check(run(REFUSING, "ENOSYS", "uring", READ_WITH_DRIVE, "pread", file), direct_threads, [])
        if has_ring:
            check(run(REFUSING, "EPERM", "enter", READ_WITH_DRIVE, "uring", file), "3 threads, direct reads",
                  [["io_uring is refused (EPERM)"]])
            check(run(REFUSING, "EPERM", "register", READ_WITH_DRIVE, "uring", file), "io_uring, direct reads",
                  [[f"fixed {what} are refused (EPERM); io_uring reads without", "seccomp profile"]
                   for what in ("files", "buffers")])
            refusals_here = sum(line.startswith("refused") for line in as_it_is)
            for ring, name in ("broken-ring", "EPERM"), ("busy-ring", "EAGAIN"):
                broken = run(READ_WITH_DRIVE, ring, file)
                check(broken, as_it_is[0], [[]] * refusals_here, is_whole=False)
                assert broken is None or broken[-1] == f"65 of 65 reads: {name}", broken
        if has_buffers:
            limited = run(REFUSING, "EPERM", "memlock", READ_WITH_DRIVE, "uring", file)
            if limited and limited[0] == "3 threads, direct reads":  # others of this user have locked all that there is
                check(limited, limited[0], [["io_uring is refused (ENOMEM); reading with pread", "LimitMEMLOCK"]])
            else:
                check(limited, "io_uring, direct reads",
                      [["fixed buffers are refused (ENOMEM): 1.06 MB would be locked, and 524.3 KB may be",
                        "ulimit -l", "LimitMEMLOCK"]])

        refused = ["direct reads of", "file.bin' are refused (EINVAL); reading through the page cache"]
        for drive in "uring", "pread":
            check(run(REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, drive, file), "3 threads, page cache", [refused])
        check(run(REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, "buffered", file), "3 threads, page cache", [])
        check(run(REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, "sim:1G,1us", file),
              "simulated drive, 1.07 GB/s, 1 us", [])
        both = run(REFUSING, "ENOSYS", "uring", REFUSING, "EINVAL", "direct", READ_WITH_DRIVE, "uring", file)
        check(both, "3 threads, page cache", [refused])

        check_error("missing': No such file", READ_WITH_DRIVE, "uring", file.with_name("missing"))
        check_error("the system starts no thread for it; look at the limit of processes", REFUSING, "EAGAIN", "threads",
                    READ_WITH_DRIVE, "buffered", file)


main()
