#!/usr/bin/env python3
"""streaming_bench.py PROGRAM [--folder DIR] [--rounds N] [--threads N] [--only NAME]: measures streaming.

smaller: the main use case. A model of 12 layers in the shapes of Qwen3.5-35B-A3B, 6.3 GB, under a hard limit
of half and of a quarter of its size, page cache included: how much of its resident speed it keeps, and how
many bytes it reads for the records that it misses.

larger: the same shape with 8 GB of experts and a cache of 2 GiB: peak memory, and the speed under a hard
limit of the planned memory plus 1 GiB.

techniques: the 12 layers with a cache for half of the experts, with each technique of the store switched off
in turn: tokens per second of decoding and of a prompt of 576 tokens in three steps, relative to all
techniques switched on.

The models are written once, to DIR (build/bench), and stay there. Limits need writable control groups
(bench/memcap.sh); without them those lines are skipped, with a message. Rounds are interleaved; numbers are
medians.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MEMCAP = HERE / "memcap.sh"
GIB = 1 << 30
SKIPPED = 77
DECODE = ("--prompt", "16", "--decode", "64", "--repeat", "3")
PROMPT = ("--prompt", "576", "--batch-size", "192", "--decode", "0", "--repeat", "1")  # in three steps


class Bench:
    def __init__(self, program: str, folder: pathlib.Path, threads: int) -> None:
        self.program, self.folder = program, folder
        self.threads = ["--threads", str(threads)] if threads else []

    def model(self, layers: int) -> pathlib.Path:
        path = self.folder / f"qwen3.5-35b-a3b-{layers}"
        if not (path / "manifest.json").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            subprocess.run([self.program, "synth", "qwen3.5-35b-a3b", str(path), "--layers", str(layers)], check=True)
        return path

    def run(self, model: pathlib.Path, *options: str, limit: int = 0) -> tuple[dict, str]:
        """The output of bench and of memcap; nothing if control groups are not writable."""
        own = () if "--prompt" in options else DECODE
        command = [self.program, "bench", str(model), "--json", "--no-limits", *own, *self.threads, *options]
        if limit:
            command = [str(MEMCAP), str(limit), str(model), *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if limit and done.returncode == SKIPPED:
            print(f"skipped: {done.stderr.strip()}")
            return {}, ""
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\nexits with {done.returncode}: {done.stderr}")
        group = re.search(r"^memcap: .*$", done.stderr, re.MULTILINE)
        return json.loads(done.stdout), group.group(0) if group else ""


def speed(result: dict) -> float:
    return result["decode"]["tokens_per_second"]


def size_of(model: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in model.rglob("*") if path.is_file())


def show(words: str, results: list[dict]) -> float:
    middle, last = statistics.median(map(speed, results)), results[-1]
    experts = last["decode"]["experts"]
    wanted = experts["hits"] + experts["misses"] + experts["late"]
    read = experts["demanded_bytes"] + experts["speculated_bytes"] + experts["filled_bytes"]
    rate = read / experts["reading_seconds"] / 1e9 if experts["reading_seconds"] else 0
    print(f"  {words:<28}{middle:6.1f} tok/s  {100 * experts['hits'] / wanted:3.0f} % hits"
          f"  {read / last['decode']['rows'] / 1e6:6.1f} MB/token  {rate:4.1f} GB/s"
          f"  {100 * experts['waiting_seconds'] / last['decode']['steps_seconds']:3.0f} % waiting"
          f"  peak {last['peak_resident_bytes'] / 1e9:.2f} GB  {last['major_faults']} major faults", flush=True)
    return middle


def bytes_a_miss(results: list[dict], record_bytes: int) -> float:
    """Bytes read, relative to the bytes of the wanted records that were missing; includes useful guesses."""
    read = missed = 0
    for result in results:
        experts = result["decode"]["experts"]
        read += experts["demanded_bytes"] + experts["speculated_bytes"]
        missed += (experts["misses"] + experts["late"]) * record_bytes + experts["useful_bytes"]
    return read / missed if missed else 1.0


def record_bytes_of(model: pathlib.Path) -> int:
    return json.loads((model / "manifest.json").read_text())["experts"][0]["records"][0][2]


def run_smaller(bench: Bench, rounds: int) -> None:
    model = bench.model(12)
    size = size_of(model)
    print(f"12 layers, {size / 1e9:.2f} GB, of which a hard limit leaves a part")
    parts = {"all in memory": 0, "limit of 50 %": size // 2, "limit of 25 %": size // 4}
    results: dict[str, list[dict]] = {words: [] for words in parts}
    for _ in range(rounds):
        for words, limit in parts.items():
            found, group = bench.run(model, limit=limit)
            if found:
                results[words].append(found)
    resident = show("all in memory", results["all in memory"])
    for words in list(parts)[1:]:
        if not results[words]:
            continue
        middle = show(words, results[words])
        print(f"    {middle / resident:.2f} of the resident speed; "
              f"{bytes_a_miss(results[words], record_bytes_of(model)):.3f} of the bytes of the missed records were read")


def run_larger(bench: Bench, rounds: int) -> None:
    model = bench.model(18)
    print(f"18 layers, {size_of(model) / 1e9:.2f} GB, an expert cache of 2 GiB")
    free, capped, groups = [], [], []
    for _ in range(rounds):
        found, _ = bench.run(model, "--expert-cache", "2G", "--io", "uring")
        free.append(found)
        limit = found["planned_bytes"] + GIB
        found, group = bench.run(model, "--expert-cache", "2G", "--io", "uring", limit=limit)
        if found:
            capped.append(found)
            groups.append(group)
    without = show("no limit", free)
    if capped:
        middle = show("limit of plan + 1 GiB", capped)
        print(f"    {middle / without:.2f} of the speed without the limit; {groups[-1]}")


TECHNIQUES = {
    "all of them": (),
    "reads while computing": ("--without", "overlap"),
    "pieces of 256 KiB": ("--without", "pieces"),
    "one record after the other": ("--without", "window"),
    "fixed buffers": ("--without", "fixed-buffers"),
    "io_uring (threads instead)": ("--io", "pread"),
    "direct reads (page cache)": ("--io", "buffered"),
    "prefetching": ("--without", "prefetch"),
    "sweeps that leave the cache alone": ("--without", "sweeps"),
}


def run_techniques(bench: Bench, rounds: int) -> None:
    model = bench.model(12)
    cache = ("--expert-cache", str(size_of(model) * 87 // 100 // 2))
    print("| without | decode | | prompt | |\n|---|---|---|---|---|")
    cells: dict[str, list[str]] = {words: [] for words in TECHNIQUES}
    for phase, tokens in (("decode", DECODE), ("prompt", PROMPT)):
        found: dict[str, list[float]] = {words: [] for words in TECHNIQUES}
        for _ in range(rounds):
            for words, options in TECHNIQUES.items():
                drive = () if "--io" in options else ("--io", "uring")
                result, _ = bench.run(model, *cache, *tokens, *drive, *options)
                found[words].append(result[phase]["tokens_per_second"])
        for words, rates in found.items():
            ratio = statistics.median(rate / all_on for rate, all_on in zip(rates, found["all of them"]))
            cells[words] += [f"{statistics.median(rates):.1f} tok/s", f"{ratio:.2f}"]
    for words, row in cells.items():
        print(f"| {words if words != 'all of them' else 'nothing'} | {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--folder", type=pathlib.Path, default=HERE.parent / "build" / "bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--only", choices=("smaller", "larger", "techniques"))
    given = parser.parse_args()
    bench = Bench(given.program, given.folder, given.threads)
    for name, run in (("smaller", run_smaller), ("larger", run_larger), ("techniques", run_techniques)):
        if given.only in (None, name):
            run(bench, given.rounds)


if __name__ == "__main__":
    main()
