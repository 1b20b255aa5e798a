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
  capi_test.py coming DOCUMENT HEADER
      the tables of DOCUMENT list every function of the original, and HEADER declares those that they promise
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


# Of the original's moeflux.h, in its order.
ORIGINAL_FUNCTIONS = """
    mf_init_model mf_free_model mf_eval_prompt mf_eval_token mf_memory_clear mf_memory_seq_rm
    mf_memory_seq_pos_max mf_n_vocab mf_n_ctx mf_eos mf_model_name mf_embed_lookup mf_rms_norm_cpu
    mf_apply_rotary_emb mf_rms_norm_per_head_cpu mf_sdpa_cpu mf_lm_head_cpu mf_moe_router_cpu
    mf_conv1d_step_cpu mf_rms_norm_bare_cpu mf_rms_norm_gated_cpu mf_gated_delta_recurrence_cpu
    mf_gpu_expert_forward mf_gpu_batched_experts_forward mf_begin_deferred_experts
    mf_complete_deferred_experts mf_discard_deferred_experts mf_load_expert_bytes mf_gpu_rms_norm_fused
    mf_attn_scores_batched mf_attn_softmax_batched mf_attn_values_batched mf_sigmoid_gate
    mf_layer_forward_dump mf_layer_forward_dump_intermediates mf_state_size mf_state_save mf_state_load
""".split()


def coming_from_the_original(document: str, header: str) -> None:
    text = pathlib.Path(document).read_text(encoding="utf-8")
    section = text.split("\n## Coming from the original\n")[1].split("\n## ")[0]
    declared = functions_of(header)
    listed = {}
    for names, here in re.findall(r"^\| (`mf_[^|]+) \| (\w[\w ]*) \|", section, re.M):
        for name in re.findall(r"`(mf_\w+)`", names):
            assert name not in listed, f"{document} lists {name} twice"
            listed[name] = here
    missing = [name for name in ORIGINAL_FUNCTIONS if name not in listed]
    assert len(ORIGINAL_FUNCTIONS) == 38 and not missing, f"{document} does not list {missing}"
    offered = {"same": True, "better": True, "different": True, "replaced": False, "not offered": False}
    for name, here in listed.items():
        assert (name in declared) == offered[here], f"{document} says that {name} is '{here}'"
    promised = set(re.findall(r"`(mf_\w+)`", section)) - set(listed)
    types = set(re.findall(r"\b(mf_\w+);", pathlib.Path(header).read_text(encoding="utf-8")))
    undeclared = sorted(name for name in promised if name not in declared | types)
    assert not undeclared, f"{document} names {undeclared}, which {header} does not declare"
    for point in re.findall(r"`(MF_\w+)`", section):
        assert point in pathlib.Path(header).read_text(encoding="utf-8"), f"{document} names {point}"


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
            "header": header_is_used, "exports": exports, "coming": coming_from_the_original,
            "example": example}
    if len(sys.argv) < 3 or sys.argv[1] not in what:
        sys.exit(__doc__)
    what[sys.argv[1]](*sys.argv[2:])
