#!/usr/bin/env python3
"""hostile_packed_test.py --program build/dev/bin/moeflux [-v] [--only TEXT] [--memory-mb N] [--cpu-seconds N]

Runs `moeflux inspect` and `moeflux verify` on damaged packed models, by the rules of tests/hostile: the
process exits by itself, with the exit code of the table, within the limits; a failure prints one line that
names the problem; no control character reaches the terminal. Each case is a valid model with one change.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "hostile"))

from cases import Case  # noqa: E402
from hostile_test import problems, run_within, shortened  # noqa: E402

GOLDENS = ROOT / "tests" / "goldens" / "tiny"
QWEN, DEEPSEEK = "qwen35moe-long-mlx4", "deepseekv3-tiny-mlx4"
Change = Callable[[pathlib.Path], None]


@dataclass(frozen=True)
class Row:
    name: str
    change: Change
    message: str  # a regular expression
    exit_code: int = 3
    golden: str = QWEN
    command: str = "inspect"


def manifest(change: Callable[[dict], object]) -> Change:
    """Changes the manifest's document; what `change` returns, if anything, takes its place."""
    def apply(folder: pathlib.Path) -> None:
        path = folder / "manifest.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps(change(document) or document, separators=(",", ":")))

    return apply


def put(*path_and_value) -> Change:
    """Sets one value of the manifest: put("tensors", 3, "offset", 7). A value ... removes the key."""
    *path, last, value = path_and_value

    def change(document: dict) -> None:
        for key in path:
            document = document[key]
        if value is ...:
            del document[last]
        else:
            document[last] = value

    return manifest(change)


def text(change: Callable[[bytes], bytes]) -> Change:
    def apply(folder: pathlib.Path) -> None:
        path = folder / "manifest.json"
        path.write_bytes(change(path.read_bytes()))

    return apply


def file(name: str, change: Callable[[pathlib.Path], object]) -> Change:
    return lambda folder: change(folder / name) and None


def resize(by: int) -> Callable[[pathlib.Path], None]:
    def apply(path: pathlib.Path) -> None:
        with path.open("r+b") as out:
            out.truncate(path.stat().st_size + by)

    return apply


def flip(at: int) -> Callable[[pathlib.Path], None]:
    def apply(path: pathlib.Path) -> None:
        content = bytearray(path.read_bytes())
        content[at] ^= 0x10
        path.write_bytes(content)

    return apply


def replaced_by_folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


def swap_tensors(document: dict) -> None:
    tensors = document["tensors"]
    tensors[0], tensors[1] = tensors[1], tensors[0]


def same_offset(document: dict) -> None:
    records = document["experts"][0]["records"]
    records[1][1] = records[0][1]


def padding_after(index: int) -> Callable[[pathlib.Path], None]:
    """Changes the first byte of padding after a tensor that has padding after it."""
    def apply(path: pathlib.Path) -> None:
        tensors = json.loads((path.parent / "manifest.json").read_text())["tensors"]
        ends = [(one["offset"] + one["bytes"], two["offset"]) for one, two in zip(tensors, tensors[1:])]
        flip([end for end, after in ends if end < after][index])(path)

    return apply


def huge(document: dict) -> None:
    """A manifest that claims a model of exabytes."""
    document["resident_bytes"] = 2**63
    document["tensors"][-1]["offset"] = 2**62


def many_layers(document: dict) -> None:
    document["config"]["layers"] = document["config"]["layers"][:1] * 1024


def wide_experts(document: dict) -> None:
    for part in document["expert_formats"][0].values():
        part["rows"] = part["cols"] = 2**22


LAST = -1
FORMAT_0 = ("expert_formats", 0, "gate", "encoding")
MIXER_0 = ("config", "layers", 0, "mixer")
MLP_0 = ("config", "layers", 0, "mlp")
RECORD_0 = ("experts", 0, "records", 0)
HEX = "16 hexadecimal digits"

DOCUMENT = [
    Row("an empty manifest", text(lambda b: b""), "manifest.json:1:1: unexpected end"),
    Row("a manifest that ends in the middle", text(lambda b: b[: len(b) // 2]),
        "unexpected end of the document"),
    Row("a manifest of zeros", text(lambda b: bytes(1000)), "manifest.json:1:1: NUL byte"),
    Row("a manifest of 17 MiB", text(lambda b: b[:-2] + b" " * (17 << 20) + b[-2:]), "16777216"),
    Row("a manifest that is 100,000 brackets deep", text(lambda b: b"[" * 100_000), "nested deeper than 16"),
    Row("a manifest of two million numbers", text(lambda b: b'{"a":[' + b"1," * 2_000_000 + b"1]}"),
        "more than 1,048,576 values"),
    Row("a manifest of a million texts", text(lambda b: b'{"a":[' + b'"abcdefghijk",' * 1_000_000 + b"1]}"),
        "'format' is missing"),
    Row("a manifest that is not UTF-8", text(lambda b: b.replace(b"embed", b"\xff\xfeb", 1)), "UTF-8"),
    Row("a manifest that is an array", text(lambda b: b"[]"), "expected an object, found an array"),
    Row("a key twice", text(lambda b: b[:-2] + b',"layout":"tile16"}'), "duplicate key 'layout'"),
    Row("another format", put("format", "something"), "'format' .*moeflux packed model"),
    Row("a version of the future", put("format_version", 2), "version 1, found 2.*pack the source again"),
    Row("a version that is no number", put("format_version", "0"), "'format_version'.*whole number"),
    Row("an unknown layout", put("layout", "tile32"), "'tile16'.*'tile32'"),
    Row("a fingerprint that is too short", put("fingerprint", "ab"), "'fingerprint'.*32 hexadecimal"),
    Row("a fingerprint in capitals", put("fingerprint", "AB" * 16), "'fingerprint'.*32 hexadecimal"),
    Row("escapes in the source's format", put("source_format", "\x1b[31mred\x07" + "x" * 500), "packed",
        exit_code=0),
] + [
    Row(f"no '{key}'", put(key, ...), f"'{key}' is missing")
    for key in ("format", "format_version", "layout", "fingerprint", "source_format", "config",
                "resident_bytes", "tensors", "expert_formats", "experts", "text_files")
]

CONFIG = [
    Row("an unknown family", put("config", "family", "llama"), "unknown kind 'llama'"),
    Row("a mixer of another family", put("config", "family", "deepseek_v3"), "'mixer'.*deepseek_v3"),
    Row("an unknown mixer", put(*MIXER_0, "kind", "mamba"), "layer 0: mixer: unknown kind 'mamba'"),
    Row("no layers", put("config", "layers", []), "'layers'.*1 to 1024"),
    Row("1,024 layers of which 4 have tensors", manifest(many_layers), "tensor 'layers.*' is (missing|not)"),
    Row("a width of 2^32", put("config", "dim", 2**32), "'dim'"),
    Row("a width of 0", put("config", "dim", 0), "'dim'"),
    Row("a width that is another", put("config", "dim", 192), "tensor 'layers.0.input_layernorm': expected"),
    Row("heads that overflow", put(*MIXER_0, "value_head_dim", 65536), "'value_heads'|tensor"),
    Row("more experts a token than experts", put(*MLP_0, "experts_per_token", 9999), "'experts_per_token'"),
    Row("65,536 experts, 8 records", put(*MLP_0, "experts", 65536), "tensor 'layers.0.mlp.gate': expected"),
    Row("an end token beyond the vocabulary", put("config", "end_tokens", [2**31]), "'end_tokens'"),
    Row("norm_eps of 0", put("config", "norm_eps", 0), "'norm_eps'"),
    Row("groups that divide nothing", put("config", "layers", 1, "mlp", "router", "groups", 5), "'groups'",
        golden=DEEPSEEK),
    Row("an odd rope", put(*MIXER_0, "rope", "dims", 15), "'dims'", golden=DEEPSEEK),
]

TENSORS = [
    Row("no tensors", put("tensors", []), "is missing"),
    Row("a tensor that is a number", put("tensors", 2, 5), "resident tensor 2.*object"),
    Row("a tensor too few", manifest(lambda d: d["tensors"].pop(3) and None), "tensor '.*' is missing"),
    Row("a tensor twice", put("tensors", 1, "name", "layers.0.input_layernorm"), "listed twice"),
    Row("a tensor of another model", manifest(lambda d: d["tensors"][0].update(name="layers.0.other")),
        "'layers.0.input_layernorm' is missing"),
    Row("control characters in a name", put("tensors", 0, "name", "a\x1b[2J\n" + "b" * 5000), "is missing"),
    Row("tensors out of order", manifest(swap_tensors), "overlaps|multiple of 256"),
    Row("an offset that is not aligned", put("tensors", 1, "offset", 513), "multiple of 256, found 513"),
    Row("an offset near 2^64", put("tensors", LAST, "offset", 2**64 - 256), "18446744073709551360.* beyond"),
    Row("a negative offset", put("tensors", 1, "offset", -256), "'offset'.*whole number"),
    Row("an offset with a fraction", put("tensors", 1, "offset", 256.5), "'offset'.*whole number"),
    Row("bytes of another size", put("tensors", 1, "bytes", 64), "'bytes'.*for this shape and encoding"),
    Row("rows of 2^40", put("tensors", 1, "rows", 2**40), "'rows'"),
    Row("a matrix as rows", put("tensors", 1, "layout", "rows"), "'encoding'.*plain F32"),
    Row("an unknown layout of a tensor", put("tensors", 1, "layout", "columns"), "'layout'.*rows or tile16"),
    Row("an unknown encoding", put("tensors", 1, "encoding", "kind", "q4_k"), "unknown encoding 'q4_k'"),
    Row("an encoding of sources only", put("tensors", 1, "encoding", {"kind": "plain", "dtype": "F16"}),
        "f16 is not an encoding of a packed model"),
    Row("7 bits", put("tensors", 1, "encoding", "bits", 7), "'bits'.*2, 3, 4, 5, 6 or 8"),
    Row("groups of 48", put("tensors", 1, "encoding", "group", 48), "'group'.*32, 64 or 128"),
    Row("a checksum of 15 digits", put("tensors", 1, "xxh3", "0" * 15), HEX),
    Row("a resident.bin of exabytes, on paper", manifest(huge), "resident.bin: expected 9223372036854775808"),
]

EXPERTS = [
    Row("no expert formats", put("expert_formats", []), "expert 0: .*format 0"),
    Row("5,000 expert formats", manifest(lambda d: d.update(expert_formats=d["expert_formats"] * 5000)),
        "'expert_formats'.*at most 4096"),
    Row("experts of another shape", manifest(wide_experts), "expected a record of|expected an expert of"),
    Row("up with other rows than gate", put("expert_formats", 0, "up", "rows", 17), "'up'.*as many rows"),
    Row("experts in 3-bit groups of 7", put(*FORMAT_0, "group", 7), "'group'"),
    Row("a format that is not there", put(*RECORD_0, 0, 2**32), "format 4294967296"),
    Row("a record that is not aligned", put(*RECORD_0, 1, 512), "not aligned to 4096"),
    Row("a record near 2^64", put(*RECORD_0, 1, 2**64 - 4096), "end beyond"),
    Row("a record of another size", put(*RECORD_0, 2, 4096), "expected a record of .* found 4096"),
    Row("two records at one place", manifest(same_offset), "two records overlap"),
    Row("a record of five parts", put(*RECORD_0, [0, 0, 0, "0" * 16, 1]), r"expected \[format, offset"),
    Row("a record's checksum in letters", put(*RECORD_0, 3, "x" * 16), HEX),
    Row("a record too few", manifest(lambda d: d["experts"][0]["records"].pop() and None),
        "found .* records"),
    Row("a layer too few", manifest(lambda d: d["experts"].pop() and None),
        "layers have routed experts, but"),
    Row("a layer twice", put("experts", 1, "layer", 0), "listed twice or out of order"),
    Row("a layer that is not there", put("experts", 0, "layer", 4096), "'layer'"),
    Row("experts of a dense layer", put("experts", 0, "layer", 0), "has no routed experts", golden=DEEPSEEK),
    Row("a file outside", put("experts", 0, "file", "../../etc/passwd"), "'file'.*inside"),
    Row("a file from the root", put("experts", 0, "file", "/etc/passwd"), "'file'.*inside"),
    Row("a file that is the folder", put("experts", 0, "file", "experts"), "experts"),
    Row("control characters in a file", put("experts", 0, "file", "a\x1b[2J"), "'file'.*inside"),
    Row("a text file outside", put("text_files", ["../config.json"]), "'text_files'.*plain names"),
    Row("a text file below", put("text_files", ["experts/layer_000.bin"]), "'text_files'.*plain names"),
    Row("a text file that is missing", put("text_files", ["tokenizer.json"]), "tokenizer.json: missing"),
    Row("10,000 text files", put("text_files", ["config.json"] * 10_000), "'text_files'"),
]

FILES = [
    Row("no manifest", file("manifest.json", pathlib.Path.unlink), "."),
    Row("no manifest, verified", file("manifest.json", pathlib.Path.unlink), "manifest.json",
        command="verify"),
    Row("a manifest that is a folder", file("manifest.json", replaced_by_folder), "manifest.json"),
    Row("no resident.bin", file("resident.bin", pathlib.Path.unlink), "resident.bin"),
    Row("a resident.bin that is a folder", file("resident.bin", replaced_by_folder), "resident.bin"),
    Row("a resident.bin a byte too short", file("resident.bin", resize(-1)),
        "resident.bin: expected .* bytes, found .*; pack the source again"),
    Row("a resident.bin a byte too long", file("resident.bin", resize(1)), "resident.bin: expected .* bytes"),
    Row("an empty resident.bin", file("resident.bin", lambda path: path.write_bytes(b"")), "found 0"),
    Row("no file of experts", file("experts/layer_001.bin", pathlib.Path.unlink), "layer_001.bin"),
    Row("a file of experts a record too short", file("experts/layer_001.bin", resize(-4096)),
        "layer_001.bin: expected .* bytes, found"),
    Row("a file of experts a terabyte too long", file("experts/layer_001.bin", resize(1 << 40)),
        "layer_001.bin: expected .* bytes, found 10995"),
    Row("a flipped bit of a tensor", file("resident.bin", flip(0)),
        r"resident.bin: tensor 'layers.0.input_layernorm' has changed \(512 bytes at offset 0\)|"
        r"tensor 'layers.0.input_layernorm' has changed", command="verify"),
    Row("a flipped bit of the last tensor", file("resident.bin", flip(-1)),
        "tensor 'embed_tokens' has changed",
        command="verify"),
    Row("a flipped bit of padding", file("resident.bin", padding_after(0)), "the padding before tensor",
        command="verify"),
    Row("a flipped bit of a record", file("experts/layer_002.bin", flip(70_000)),
        "the record of layer 2, expert [0-9]+ has changed", command="verify"),
    Row("a flipped bit of a record's padding", file("experts/layer_003.bin", flip(-1)),
        "the record of layer 3, expert 7 has changed", command="verify"),
    Row("a wrong checksum", put(*RECORD_0, 3, "0" * 16), "the record of layer 0, expert 0 has changed",
        command="verify"),
]

TABLE = {"document": DOCUMENT, "config": CONFIG, "tensors": TENSORS, "experts": EXPERTS, "files": FILES}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--memory-mb", type=int, default=100, help="0: no limit")
    parser.add_argument("--cpu-seconds", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()

    passed = failed = 0
    worst_memory, worst_cpu = (0.0, ""), (0.0, "")
    with tempfile.TemporaryDirectory(prefix="hostile-packed-") as name:
        scratch = pathlib.Path(name)
        for golden in (QWEN, DEEPSEEK):
            command = [arguments.program, "pack", GOLDENS / golden, scratch / golden]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for case in (case for section in TABLE.values() for case in section if arguments.only in case.name):
            folder = scratch / "model"
            shutil.copytree(scratch / case.golden, folder)
            case.change(folder)
            outcome = run_within([arguments.program, case.command, folder], scratch, arguments.cpu_seconds)
            rule = Case(case.name, lambda _: None, case.exit_code, (re.compile(case.message),))
            wrong = problems(rule, outcome, arguments.memory_mb)
            passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
            worst_memory = max(worst_memory, (outcome.memory_mb, case.name))
            worst_cpu = max(worst_cpu, (outcome.cpu_seconds, case.name))
            if wrong or arguments.verbose:
                says = shortened(outcome, folder)[:300]
                print(f"{'FAIL' if wrong else 'ok  '} {case.name}: {says}", flush=True)
                for problem in wrong:
                    print(f"     {problem}", flush=True)
            shutil.rmtree(folder)
    print(f"most memory {worst_memory[0]:.0f} MB: {worst_memory[1]}")
    print(f"most processor time {worst_cpu[0]:.2f} s: {worst_cpu[1]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
