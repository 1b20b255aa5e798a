#!/usr/bin/env python3
"""speed_bench.py PROGRAM [--folder DIR] [--rounds N] [--only WORD] [--json FILE] [--instructions]
               [--against NAME=DECODE,PROMPT ...] [--busy N]

Measures the speed of a model in memory, and how much of the machine's limits that is: 12 layers in the shapes
of Qwen3.5-35B-A3B with a vocabulary of 32,768, 476 MB of weights per token. It covers decoding and prompts,
exact and fast, one thread and two, eight sessions together, prompts of 4,096 tokens, and keys and values as
floats and (int8) as bytes. docs/performance.md has results.

Each line is a separate process that measures memory and products next to the model. Rounds are interleaved
and numbers are medians of the rounds, so host load affects all lines alike. The model is written once, to DIR
(build/bench). --json writes all numbers with the facts of the machine. --against compares the lines of one
thread with the tokens per second of another program, which you measured on the same machine. --busy measures
each line a second time beside N processes that compute without end, at the same priority.

--instructions counts instructions per function with callgrind instead, for machines whose timing is too
noisy: Tern, with the kernels for AVX2 (valgrind does not support AVX-512).
"""

import argparse
import contextlib
import json
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys

LAYERS, VOCABULARY = 12, 32768
# name: options of bench, and what the machine's limit is
CASES = {
    "decode, fast, 1 thread": (["--precision", "fast", "-t", "1", "--prompt", "16", "--decode", "64"], "memory"),
    "decode, exact, 1 thread": (["--precision", "exact", "-t", "1", "--prompt", "16", "--decode", "48"], "memory"),
    "decode, fast, 2 threads": (["--precision", "fast", "-t", "2", "--prompt", "16", "--decode", "64"], "memory"),
    "8 decodes, fast, 1 thread": (
        ["--precision", "fast", "-t", "1", "--prompt", "16", "--decode", "24", "--parallel", "8"], "memory"),
    "8 decodes, fast, 2 threads": (
        ["--precision", "fast", "-t", "2", "--prompt", "16", "--decode", "24", "--parallel", "8"], "memory"),
    "prompt 512, fast, 1 thread": (["--precision", "fast", "-t", "1", "--prompt", "512", "--decode", "0"], "compute"),
    "prompt 512, fast, 2 threads": (["--precision", "fast", "-t", "2", "--prompt", "512", "--decode", "0"], "compute"),
    "prompt 512, exact, 1 thread": (["--precision", "exact", "-t", "1", "--prompt", "512", "--decode", "0"], "compute"),
    "prompt 512, int8, 1 thread": (
        ["--precision", "fast", "--kv", "int8", "-t", "1", "--prompt", "512", "--decode", "0"], "compute"),
    "prompt 4096, fast, 1 thread": (
        ["--precision", "fast", "-t", "1", "--prompt", "4096", "--decode", "0", "--repeat", "1"],
        "compute"),
    "prompt 4096, int8, 1 thread": (
        ["--precision", "fast", "--kv", "int8", "-t", "1", "--prompt", "4096", "--decode", "0", "--repeat", "1"],
        "compute"),
}


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexits with {done.returncode}: {done.stderr}")
    return done.stdout


def make_model(program: str, folder: pathlib.Path) -> pathlib.Path:
    path = folder / f"qwen3.5-35b-a3b-{LAYERS}-{VOCABULARY}"
    if (path / "manifest.json").exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    # The shape with its own vocabulary and the fewest experts possible, for its config.json.
    own = folder / "shape"
    shutil.rmtree(own, ignore_errors=True)
    run(program, "synth", "qwen3.5-35b-a3b", str(own), "--layers", str(LAYERS), "--experts", "8")
    config = json.loads((own / "config.json").read_text())
    shutil.rmtree(own)
    shape = config.get("text_config", config)
    shape["vocab_size"], shape["num_experts"], shape["eos_token_id"] = VOCABULARY, 256, 0
    changed = folder / "config.json"
    changed.write_text(json.dumps(config))
    run(program, "synth", str(changed), str(path))
    return path


def machine() -> dict:
    facts = {"kernel": platform.release(), "machine": platform.machine()}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            facts["processor"] = line.split(":", 1)[1].strip()
        if line.startswith("flags"):
            wanted = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8")
            facts["instructions"] = [flag for flag in line.split() if flag in wanted]
    facts["processors"] = len(re.findall(r"^processor", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    found = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    facts["memory_bytes"] = int(found.group(1)) * 1024 if found else 0
    pages = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    facts["huge_pages"] = pages.read_text().strip() if pages.exists() else "unknown"
    return facts


def measure(program: str, model: pathlib.Path, options: list[str]) -> dict:
    repeat = [] if "--repeat" in options else ["--repeat", "2"]
    return json.loads(run(program, "bench", str(model), "--json", "--warm-up", "1", *repeat, *options))


@contextlib.contextmanager
def busy(processes: int):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rate_of(name: str, found: dict) -> float:
    return found["prompt" if name.startswith("prompt") else "decode"]["tokens_per_second"]


def of_limit(name: str, found: dict) -> float:
    return found["memory_fraction" if CASES[name][1] == "memory" else "compute_fraction"]


def show(name: str, rounds: list[dict], busy_rounds: list[dict], rivals: list[str]) -> dict:
    rate = statistics.median(rate_of(name, found) for found in rounds)
    part = statistics.median(of_limit(name, found) for found in rounds)
    limit = "the memory's rate" if CASES[name][1] == "memory" else "the products' rate"
    text = f"{name:<29}{rate:8.1f} tok/s {100 * part:5.0f} % of {limit}"
    if name.endswith("1 thread") and ", fast" in name:
        for rival in rivals:
            who, rates = rival.rsplit("=", 1)
            theirs = rates.split(",")[0 if "decode" in name else -1]
            text += f"   {rate / float(theirs):.2f} x {who}"
    shown = {"tokens_per_second": rate, "of_limit": part, "rounds": rounds}
    if busy_rounds:
        shown["busy"] = busy_rounds
        shown["of_quiet"] = statistics.median(rate_of(name, found) for found in busy_rounds) / rate
        text += f"   {shown['of_quiet']:.2f} of it when busy"
    print(text, flush=True)
    return shown


def count_instructions(program: str, folder: pathlib.Path) -> dict:
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "callgrind.out"
    tern = pathlib.Path(__file__).resolve().parent.parent / "models" / "tern"
    counts = {}
    for precision in ("exact", "fast"):
        for name, options in (("prompt 128", ("--prompt", "128", "--decode", "0")),
                              ("decode 16", ("--prompt", "1", "--decode", "16"))):
            run("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=*Engine::step*", program,
                "bench", str(tern), "--precision", precision, "--isa", "avx2", "-t", "1", *options, "--repeat", "1",
                "--warm-up", "0", "--no-limits", "--io", "buffered", "--json")
            page = run("callgrind_annotate", "--threshold=95", str(out))
            total = int(re.search(r"([\d,]+) \(100\.0%\)\s+PROGRAM TOTALS", page).group(1).replace(",", ""))
            functions = [(int(n.replace(",", "")), f.strip()) for n, f in
                         re.findall(r"^\s*([\d,]+) \([^)]*\)\s+\S*?:(.*?)(?: \[|$)", page, re.MULTILINE)]
            counts[f"{name}, {precision}"] = {"instructions": total, "functions": functions[:12]}
            print(f"{name}, {precision}: {total / 1e6:.1f} M instructions")
            for number, function in functions[:6]:
                print(f"  {100 * number / total:5.1f} %  {function[:100]}")
    out.unlink()
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/bench"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--against", action="append", default=[])
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--instructions", action="store_true")
    arguments = parser.parse_args()
    result = {"machine": machine()}
    if arguments.instructions:
        result["instructions"] = count_instructions(arguments.program, arguments.folder)
    else:
        model = make_model(arguments.program, arguments.folder)
        names = [name for name in CASES if arguments.only in name]
        rounds = {name: [] for name in names}
        busy_rounds = {name: [] for name in names}
        for _ in range(arguments.rounds):
            for name in names:
                rounds[name].append(measure(arguments.program, model, CASES[name][0]))
                if arguments.busy != 0:
                    with busy(arguments.busy):
                        busy_rounds[name].append(measure(arguments.program, model, CASES[name][0]))
        result["cases"] = {name: show(name, rounds[name], busy_rounds[name], arguments.against) for name in names}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
