#!/usr/bin/env python3
"""Packs a synthetic source of about 5 GB and compares the rate with that of the disk in the same run.

Three rounds, interleaved: write a plain file (4 MiB appends, one fsync), then pack. Prints medians, the
ratio, and the peak memory of packing. Fails if memory exceeds 1 GB or packing is slower than 70 % of the rate
of the disk.

    bench/pack_bench.py [BINARY] [--layers N] [--folder DIR]
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MEMORY_LIMIT_MB = 1000
LEAST_RATIO = 0.70


def run(arguments: list[str]) -> tuple[float, float]:
    """Seconds and peak resident MB of a child."""
    start = time.monotonic()
    child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"failed: {' '.join(arguments)}")
    return time.monotonic() - start, usage.ru_maxrss / 1000


def disk_rate(folder: Path, size: int) -> float:
    """Bytes per second of a sequential write, up to its fsync."""
    block = os.urandom(4 << 20)
    path = folder / "plain"
    start = time.monotonic()
    with open(path, "wb", buffering=0) as out:
        for _ in range(size // len(block)):
            out.write(block)
        os.fsync(out.fileno())
    seconds = time.monotonic() - start
    path.unlink()
    return size / seconds


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", default="build/moeflux")
    parser.add_argument("--layers", type=int, default=10, help="of the 35B shape, 0.45 GB each")
    parser.add_argument("--folder", help="where to write (default: the temporary folder)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < 15_000_000_000:
            sys.exit("15 GB of free disk are needed; --folder chooses another place")
        source, packed = folder / "source", folder / "packed"
        run([options.binary, "synth", "qwen3.5-35b-a3b", str(source), "--layers", str(options.layers),
             "--source", "mlx"])
        size = bytes_in(source)
        disk, packing, memory = [], [], 0.0
        for _ in range(options.rounds):
            disk.append(disk_rate(folder, size))
            seconds, peak = run([options.binary, "pack", str(source), str(packed)])
            packing.append(bytes_in(packed) / seconds)
            memory = max(memory, peak)
            shutil.rmtree(packed)
        ratio = statistics.median(packing) / statistics.median(disk)
        print(f"source {size / 1e9:.2f} GB; disk {statistics.median(disk) / 1e9:.2f} GB/s, "
              f"pack {statistics.median(packing) / 1e9:.2f} GB/s: {ratio:.0%} of the disk, peak {memory:.0f} MB")
        return 0 if ratio >= LEAST_RATIO and memory <= MEMORY_LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
