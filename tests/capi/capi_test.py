#!/usr/bin/env python3
"""libmoeflux.so as its users call it.

  capi_test.py use MOEFLUX PROGRAM
      PROGRAM calls every function of engines and sessions, on models that MOEFLUX packs
  capi_test.py original MOEFLUX PROGRAM
      PROGRAM calls every function of the original, also on artifacts as the original's converters write them
  capi_test.py streaming MOEFLUX PROGRAM
      PROGRAM streams experts, and detects the model that it spoils
  capi_test.py text MOEFLUX PROGRAM
      PROGRAM gives the reference's replies to all of Tern's conversations, and uses the rest of the text half
  capi_test.py header HEADER PROGRAM_C...
      the programs together call every function of HEADER
  capi_test.py exports HEADER LIBRARY
      LIBRARY exports the functions of HEADER, and nothing else
  capi_test.py example DOCUMENT MOEFLUX LIBRARY
      the Python program in DOCUMENT continues a text as the reference does
"""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "goldens" / "tiny"
QWEN, DEEPSEEK = "qwen35moe-tiny-mlx4", "deepseekv3-tiny-mlx4"
FUNCTION = re.compile(r"^MF_API [^(]*?\b(mf_\w+)\(", re.M)
PATIENCE_S = 280

sys.path.insert(0, str(ROOT / "tests" / "source"))
from write_original import write_original  # noqa: E402


def run(*command: object) -> str:
    child = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                           timeout=PATIENCE_S)
    if child.returncode != 0:
        sys.exit(f"{command[0]} exits with {child.returncode}: {child.stderr or child.stdout}")
    return child.stdout


def functions_of(header: str) -> set[str]:
    names = FUNCTION.findall(pathlib.Path(header).read_text(encoding="utf-8"))
    assert len(names) == len(set(names)) > 40, f"{header}: {len(names)} functions"
    return set(names)


def use(moeflux: str, program: str) -> None:
    with tempfile.TemporaryDirectory(prefix="capi-test-") as name:
        models = [pathlib.Path(name, model) for model in (QWEN, DEEPSEEK)]
        for model in models:
            run(moeflux, "pack", TINY / model.name, model)
        scratch = pathlib.Path(name, "scratch")
        scratch.mkdir()
        print(run(program, *models, scratch), end="")


def use_original(moeflux: str, program: str) -> None:
    with tempfile.TemporaryDirectory(prefix="capi-test-") as name:
        folder = pathlib.Path(name)
        (folder / "scratch").mkdir()
        for model in (QWEN, DEEPSEEK):
            run(moeflux, "pack", TINY / model, folder / model)
        original, original_2bit, both, stale = (
            folder / name for name in ("original", "original_2bit", "original_both", "stale"))
        write_original(TINY / QWEN, original, "parent", False, True)
        settings = original / "mlx" / "generation_config.json"
        settings.write_text('{"eos_token_id": [7, 511]}', encoding="utf-8")
        for flat in (original_2bit, both, stale):
            write_original(TINY / QWEN, flat, "flat", True, True)
        write_original(TINY / QWEN, both, "flat", False, True)
        shutil.copytree(folder / DEEPSEEK, stale / "moeflux_packed_2bit")
        models = folder / QWEN, folder / DEEPSEEK
        print(run(program, *models, folder / "scratch", original, original_2bit, both, stale), end="")


def use_streaming(moeflux: str, program: str) -> None:
    with tempfile.TemporaryDirectory(prefix="capi-test-") as name:
        models = [pathlib.Path(name, model) for model in ("qwen", "deepseek", "spoiled")]
        for source, model in zip((QWEN, DEEPSEEK, QWEN), models):
            run(moeflux, "pack", TINY / source, model)
        print(run(program, *models), end="")


def use_text(moeflux: str, program: str) -> None:
    cases = json.loads((ROOT / "tests" / "goldens" / "tern" / "golden_chat.json").read_text(encoding="utf-8"))
    assert len(cases) == 25
    with tempfile.TemporaryDirectory(prefix="capi-test-") as name:
        folder = pathlib.Path(name)
        run(moeflux, "pack", ROOT / "models" / "tern", folder / "tern")
        for case in cases:
            texts = {"messages": json.dumps(case["messages"]),
                     "tools": json.dumps(case["tools"]) if case["tools"] else "",
                     "ids": "\n".join(map(str, case["greedy_ids"])),
                     "reply": case["reply"]}
            for key, text in texts.items():
                (folder / key).write_text(text, encoding="utf-8")
            print(case["name"], run(program, folder / "tern", *(folder / key for key in texts)), end="")


def header_is_used(header: str, *programs: str) -> None:
    text = "".join(pathlib.Path(program).read_text(encoding="utf-8") for program in programs)
    unused = sorted(name for name in functions_of(header) if not re.search(rf"\b{name}\(", text))
    assert not unused, f"{', '.join(programs)} do not call {', '.join(unused)}"


def exports(header: str, library: str) -> None:
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    found = {line.split()[-1].split("@")[0] for line in lines}
    declared = functions_of(header)
    assert found == declared, (f"{library} exports {sorted(found - declared)[:5]} beyond its header, "
                               f"and lacks {sorted(declared - found)[:5]}")
    dynamic = run("readelf", "-d", library)
    assert "[libmoeflux.so.0]" in dynamic, f"{library} is not called libmoeflux.so.0"


def golden_ids(name: str, tensor: str) -> list[int]:
    data = (TINY / name / "golden.safetensors").read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    entry = json.loads(data[8:8 + size])[tensor]
    begin, end = entry["data_offsets"]
    return list(struct.unpack_from(f"<{(end - begin) // 4}i", data, 8 + size + begin))


def example(document: str, moeflux: str, library: str) -> None:
    text = pathlib.Path(document).read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert len(programs) == 1, f"{document}: expected one Python program, found {len(programs)}"
    with tempfile.TemporaryDirectory(prefix="capi-test-") as folder:
        script = pathlib.Path(folder, "example.py")
        script.write_text(programs[0], encoding="utf-8")
        for name in (QWEN, DEEPSEEK):
            model = pathlib.Path(folder, name)
            run(moeflux, "pack", TINY / name, model)
            printed = run(sys.executable, "-B", script, library, model, *golden_ids(name, "input_ids"))
            expected = golden_ids(name, "greedy_ids")[:8]
            assert [int(word) for word in printed.split()] == expected, f"{name}: {printed!r}, not {expected}"


if __name__ == "__main__":
    what = {"use": use, "original": use_original, "streaming": use_streaming, "text": use_text,
            "header": header_is_used, "exports": exports, "example": example}
    if len(sys.argv) < 3 or sys.argv[1] not in what:
        sys.exit(__doc__)
    what[sys.argv[1]](*sys.argv[2:])
