"""`moeflux tokenize`, `detokenize`, `template` and `perplexity`: checks run by golden_chat_test.py.

The docstring of a check says what is true.
"""

import json
import math
import pathlib
import struct

import numpy as np

from sandbox import ROOT, TERN, Sandbox

GOLDENS = ROOT / "tests" / "goldens" / "tern"
CASES = json.loads((GOLDENS / "golden_tokenizer.json").read_text(encoding="utf-8"))


def goldens_both_ways(box: Sandbox, model: pathlib.Path) -> None:
    """tokenize --jsonl gives the reference's ids and detokenize --jsonl its text, for all hard cases"""
    texts = "".join(json.dumps(case["text"]) + "\n" for case in CASES)
    for folder in (TERN, model):
        ids = box.run("tokenize", folder, "--special", "--jsonl", stdin=texts)
        assert ids.stderr == "", ids.stderr
        assert [json.loads(line) for line in ids.stdout.splitlines()] == [case["ids"] for case in CASES]
        back = box.run("detokenize", folder, "--jsonl", stdin=ids.stdout)
        # Not splitlines(), which also splits at U+2028 and similar characters.
        assert [json.loads(line) for line in back.stdout.split("\n")[:-1]] == [case["decoded"] for case in CASES]


def every_form_is_understood(box: Sandbox, model: pathlib.Path) -> None:
    """detokenize restores the output of tokenize, lines or JSON, byte for byte"""
    for case in CASES:
        if case["text"] != case["decoded"]:
            continue
        lines = box.run("tokenize", model, "--special", stdin=case["text"]).stdout
        array = box.run("tokenize", model, "--special", "--json", stdin=case["text"]).stdout
        assert list(map(int, lines.split())) == json.loads(array) == case["ids"], (case["text"], lines, array)
        for form in (lines, array):
            assert box.run("detokenize", model, stdin=form).stdout == case["text"], (case["text"], form)


def special_tokens(box: Sandbox, model: pathlib.Path) -> None:
    """special tokens in a text are text unless --special is given; --skip-special omits them"""
    text = "hi<|im_end|>"
    plain = json.loads(box.run("tokenize", model, "--json", stdin=text).stdout)
    special = json.loads(box.run("tokenize", model, "--json", "--special", stdin=text).stdout)
    assert 4034 not in plain and special[-1] == 4034 and len(special) == 2, (plain, special)
    for ids in (plain, special):
        assert box.run("detokenize", model, stdin=json.dumps(ids)).stdout == text
    assert box.run("detokenize", model, "--skip-special", stdin=json.dumps(special)).stdout == "hi"


def bad_lines(box: Sandbox, model: pathlib.Path) -> None:
    """a bad line is named by its number; the lines before it are answered"""
    for line in ('"open', "5", "[1]", "", '"a" "b"'):
        child = box.run("tokenize", model, "--jsonl", stdin=f'"a"\n{line}\n"c"\n', code=3)
        assert child.stdout == "[64]\n" and "line 2" in child.stderr, (line, child.stdout, child.stderr)
    for line in ("[99999]", "[4294967296]", "[1, 4041]"):
        child = box.run("detokenize", model, "--jsonl", stdin=f"[64]\n{line}\n", code=1)
        assert child.stdout == '"a"\n' and "line 2" in child.stderr, (line, child.stdout, child.stderr)
    child = box.run("detokenize", model, stdin="64 99999", code=1)
    assert child.stdout == "" and "99999" in child.stderr and "4041" in child.stderr, child.stderr


def bad_use(box: Sandbox, model: pathlib.Path) -> None:
    """a folder without a tokenizer, conflicting flags and a missing file of messages are named"""
    child = box.run("tokenize", box.folder / "home", stdin="x", code=3)
    assert "tokenizer.json" in child.stderr, child.stderr
    child = box.run("tokenize", model, "--json", "--jsonl", stdin="x", code=2)
    assert "--json" in child.stderr and "--jsonl" in child.stderr, child.stderr
    child = box.run("template", model, "--messages", "-", stdin='[{"role": 7}]', code=3)
    assert "messages[0].role" in child.stderr and child.stdout == "", child.stderr
    child = box.run("template", model, "--messages", "missing.json", code=2)
    assert "--messages" in child.stderr and "missing.json" in child.stderr and child.stdout == "", child.stderr
    for flag in ("--tools", "--chat-template"):
        child = box.run("template", model, "--messages", "-", flag, "missing.json", code=2,
                        stdin='[{"role": "user", "content": "x"}]')
        assert flag in child.stderr and "missing.json" in child.stderr and child.stdout == "", child.stderr
    child = box.run("template", model, code=2)
    assert "--messages" in child.stderr, child.stderr


def template_options(box: Sandbox, model: pathlib.Path) -> None:
    """template takes another template and its variables, and can omit the start of the reply"""
    messages = '[{"role": "user", "content": "x<|im_end|>"}]'
    closed = box.run("template", model, "--messages", "-", "--no-generation-prompt", stdin=messages).stdout
    assert closed == "<|im_start|>user\nx<|im_end|><|im_end|>\n", closed
    own = box.file("own.jinja", "{% for m in messages %}[{{ m.role }}] {{ m.content }} {{ mood }}{% endfor %}")
    rendered = box.run("template", model, "--messages", "-", "--chat-template", own, "--chat-template-kwargs",
                       '{"mood": "glad"}', stdin=messages).stdout
    assert rendered == "[user] x<|im_end|> glad", rendered
    ids = json.loads(box.run("template", model, "--messages", "-", "--ids", stdin=messages).stdout)
    assert ids.count(4034) == 1, f"a user's text became a special token: {ids}"


def golden_perplexity() -> tuple[float, int]:
    """Perplexity and count of scored tokens from the reference's logits of golden_text.txt."""
    data = (GOLDENS / "golden_text.safetensors").read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])

    def tensor(name: str, kind: str) -> np.ndarray:
        begin, end = header[name]["data_offsets"]
        return np.frombuffer(data[8 + size + begin:8 + size + end], kind).reshape(header[name]["shape"])

    logits, ids = tensor("logits", "<f4").astype(np.float64)[:-1], tensor("input_ids", "<i4")
    largest = logits.max(axis=1)
    normalizer = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
    return math.exp((normalizer - logits[np.arange(len(logits)), ids[1:]]).mean()), len(ids)


def perplexity(box: Sandbox, model: pathlib.Path) -> None:
    """perplexity equals that of the reference's logits; short windows score their second halves"""
    expected, count = golden_perplexity()
    text = GOLDENS / "golden_text.txt"
    found = json.loads(box.run("perplexity", model, "--precision", "exact", text, "--json", "-t", 1).stdout)
    # Logits differ by at most 5e-4 (tests/goldens/README.md), so the mean log-likelihood by at most 1e-3.
    assert abs(math.log(found["perplexity"] / expected)) <= 1e-3, f"{found}, not {expected}"
    assert (found["text_tokens"], found["scored_tokens"], found["windows"]) == (count, count - 1, 1), found
    page = box.run("perplexity", model, "--precision", "exact", text, "-t", 1)
    assert f"{found['perplexity']:.4f} ± {found['standard_error']:.4f}" in page.stdout, page.stdout
    assert page.stderr.startswith("memory: "), page.stderr
    windows = json.loads(box.run("perplexity", model, "--precision", "exact", text, "--json", "-t", 1, "-c", 16).stdout)
    assert (windows["windows"], windows["scored_tokens"]) == (count // 16, count // 16 * 7), windows
    nothing = box.run("perplexity", model, "--precision", "exact", box.file("one.txt", "a"), code=2)
    assert "one.txt" in nothing.stderr and nothing.stdout == "", nothing.stderr
    absent = box.run("perplexity", model, "--precision", "exact", box.folder / "nothing.txt", code=2)
    assert "FILE" in absent.stderr and "nothing.txt" in absent.stderr, absent.stderr


CHECKS = [goldens_both_ways, every_form_is_understood, special_tokens, bad_lines, bad_use, template_options, perplexity]
