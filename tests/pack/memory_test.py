#!/usr/bin/env python3
"""memory_test.py BINARY: the memory for packing and verifying does not grow with the source.

Packs a source of over 600 MB, which has a tensor larger than the limit, with two jobs in at most 200 MB, and
verifies the result in at most 100 MB. Repeats this with a smaller BF16 source that is quantized. Removes the
files afterwards.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACK_MB, VERIFY_MB = 200, 100
SOURCE_BYTES = 600_000_000
DISK_BYTES = 2_000_000_000


def run(binary: str, *arguments) -> tuple[float, float]:
    """Runs a command that must succeed; returns its peak memory in MB and its seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([binary, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        message = errors.read().decode()
    assert child.returncode == 0, f"{arguments[0]} exits with {child.returncode}: {message}"
    return usage.ru_maxrss / 1024, time.monotonic() - began


def bytes_in(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check(binary: str, scratch: pathlib.Path, shape, synth: list, pack: list, least_bytes: int) -> str:
    source, packed = scratch / "source", scratch / "packed"
    run(binary, "synth", shape, source, *synth)
    size = bytes_in(source)
    assert size >= least_bytes, f"the source has only {size:,} bytes"
    memory, seconds = run(binary, "pack", source, packed, "--jobs", 2, *pack)
    shutil.rmtree(source)
    assert memory <= PACK_MB, f"packing took {memory:.0f} MB, at most {PACK_MB} are allowed"
    verify_memory, verify_seconds = run(binary, "verify", packed, "--jobs", 2)
    assert verify_memory <= VERIFY_MB, f"verifying took {verify_memory:.0f} MB, at most {VERIFY_MB} are allowed"
    result = bytes_in(packed)
    shutil.rmtree(packed)
    return (f"{size / 1e6:.0f} MB packed into {result / 1e6:.0f} MB in {seconds:.1f} s with {memory:.0f} MB, "
            f"verified in {verify_seconds:.1f} s with {verify_memory:.0f} MB")


def wide_config(scratch: pathlib.Path) -> pathlib.Path:
    """The tiny model, made wide enough for its matrices to dominate."""
    golden = ROOT / "tests" / "goldens" / "tiny" / "qwen35moe-tiny-bf16"
    config = json.loads((golden / "config.json").read_text())
    config.get("text_config", config).update(
        hidden_size=2048, vocab_size=24_576, moe_intermediate_size=512, shared_expert_intermediate_size=512)
    path = scratch / "config.json"
    path.write_text(json.dumps(config))
    return path


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: memory_test.py BINARY", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="memory-test-") as name:
        scratch = pathlib.Path(name)
        if shutil.disk_usage(scratch).free < DISK_BYTES:
            print(f"FAILED  needs {DISK_BYTES / 1e9:.0f} GB of free disk in {tempfile.gettempdir()}")
            return 1
        cases = {
            "4 bits": ("qwen3.5-35b-a3b", ["--layers", 1, "--experts", 48, "--source", "mlx"], [],
                       SOURCE_BYTES),
            "BF16, --bits 4": (wide_config(scratch), ["--layers", 1, "--experts", 16, "--source", "bf16"],
                               ["--bits", 4], SOURCE_BYTES // 3),
        }
        failed = 0
        for what, (shape, synth, pack, least_bytes) in cases.items():
            try:
                seen = check(sys.argv[1], scratch, shape, synth, pack, least_bytes)
                print(f"ok      {what}: {seen}", flush=True)
            except AssertionError as problem:
                failed += 1
                print(f"FAILED  {what}: {problem}", flush=True)
                for folder in ("source", "packed"):
                    shutil.rmtree(scratch / folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
