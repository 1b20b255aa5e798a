#!/usr/bin/env python3
"""sync_test.py REFUSING SYNC_FILES: files and directories are synced, and errors are reported.

A fake file system cannot tell whether the real one calls fsync. Here a seccomp filter makes fsync and
fdatasync fail: a sync that reports success has not called either. Exits with 77 if this machine cannot
install the filter.
"""

import pathlib
import subprocess
import sys
import tempfile

REFUSING, SYNC_FILES = sys.argv[1:]
CANNOT_REFUSE = 77  # exit code of REFUSING, and of a skipped test (SKIP_RETURN_CODE)


def run(folder, *prefix):
    """The result of each operation by its name. Ends the test if this machine cannot refuse system calls."""
    child = subprocess.run([*prefix, SYNC_FILES, folder], capture_output=True, text=True, check=False, timeout=120)
    if child.returncode == CANNOT_REFUSE:
        print(f"skipped: this machine cannot refuse system calls: {child.stderr.strip()}")
        sys.exit(CANNOT_REFUSE)
    assert child.returncode == 0, f"exit code {child.returncode}: {child.stderr}"
    return dict(line.split(": ", 1) for line in child.stdout.splitlines())


def expect_failure(results, operation, *facts):
    message = results[operation]
    assert message != "ok", f"{operation} reports success, but fsync failed: {results}"
    for fact in facts:
        assert fact in message, f"{operation}: expected '{fact}' in '{message}'"


def check_refused_sync(folder):
    results = run(folder, REFUSING, "EIO", "sync")
    assert results["append"] == "ok", results
    expect_failure(results, "sync", str(folder / "file.bin"), "Input/output error")
    expect_failure(results, "sync_directory", str(folder), "Input/output error")
    expect_failure(results, "write_file_atomically", str(folder / "atomic.bin"), "Input/output error")
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["file.bin"], f"an unsynced file was given its name, or its partial file was left: {left}"


def check_file_system_without_directory_sync(folder):
    """EINVAL means that the file system does not sync directories. For a file it is an ordinary error."""
    results = run(folder, REFUSING, "EINVAL", "sync")
    expect_failure(results, "sync", str(folder / "file.bin"), "Invalid argument")
    assert results["sync_directory"] == "ok", results


def check_allowed_sync(folder):
    results = run(folder)
    assert set(results.values()) == {"ok"}, results
    assert (folder / "atomic.bin").stat().st_size == 100


def main():
    # The first check needs no filter, so it can fail on any machine.
    for check in check_allowed_sync, check_refused_sync, check_file_system_without_directory_sync:
        with tempfile.TemporaryDirectory() as folder:
            check(pathlib.Path(folder))


main()
