#!/usr/bin/env python3
"""shapes_test.py PROGRAM [WORD...]: models of odd shapes and every encoding, against a float64 reference.

For each model of odd_models.py (with WORDs, those whose names contain one of them), reference64.py computes
logits, hidden states and router choices, and PROGRAM packs the checkpoint and evaluates it. Errors must be
within the rounding of float32, and options that only change how the result is computed must not change a bit.
"""

import dataclasses
import pathlib
import sys
import tempfile
import time
from typing import Callable, Optional

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "source"), str(ROOT / "tests" / "pack")]

import reference_reader  # noqa: E402
from checkpoint_writer import Tensors, write_safetensors  # noqa: E402
from odd_models import Case, cases  # noqa: E402
from packed_reader import read_packed  # noqa: E402
from program import Program  # noqa: E402
from reference64 import Decoded, Routed, forward_of  # noqa: E402
from reference_reader import Tensor  # noqa: E402

# The error of a sum of float32 products is about 6e-8 of the size of its terms times the square root of their
# number: about 1e-6 of the output of a matrix here, which is of order 1. Two or three layers of about ten
# matrices each, and a head that makes logits ten times as large, add up to about 1e-5: the reference run in
# float32 is off by at most 3e-5 in the logits of all these models, and 1e-5 in hidden states. That is one
# order of summation; another may be off by ten times as much. The feature that a case tests moves logits by
# more than 20 times the bound (Case.seen).
MAX_ERROR = 5e-4
MAX_HIDDEN_ERROR = 1e-4
MAX_ROUTER_ERROR = 5e-5

# A router can only distinguish two scores that differ by more than their errors. Prompts on which the
# reference is closer than this to another choice are not used.
MARGIN = 1e-4
TRIES = 60


@dataclasses.dataclass
class Expected:
    logits: np.ndarray  # of the prompt
    hidden_states: list[np.ndarray]
    routers: list[Optional[Routed]]
    greedy_ids: np.ndarray
    greedy_logits: np.ndarray

    def margin(self) -> float:
        routers = [routed.margin.min() for routed in self.routers if routed]
        rows = np.concatenate([self.logits[-1:], self.greedy_logits[:-1]]) if len(self.greedy_ids) else []
        return min([*routers, *(gap / 20 for gap in gaps(rows))], default=np.inf)


def gaps(rows: np.ndarray) -> np.ndarray:
    """The distance of the largest of each row from the next."""
    if not len(rows):
        return np.zeros(0)
    best = np.partition(rows, -2)[:, -2:]
    return best[:, 1] - best[:, 0]


class Reference:
    def __init__(self, config: dict, numbers: dict[str, np.ndarray]) -> None:
        self.config, self.numbers = config, numbers

    def expect(self, prompt: np.ndarray, greedy: int, experts: Optional[int] = None) -> Expected:
        ids, count = list(prompt), len(prompt)
        for _ in range(greedy):
            ids.append(int(forward_of(self.config, self.numbers, ids, experts)[0][-1].argmax()))
        logits, hidden_states, routers = forward_of(self.config, self.numbers, ids, experts)
        cut = [routed and Routed(*(part[:count] for part in dataclasses.astuple(routed)))
               for routed in routers]
        return Expected(logits[:count], [states[:count] for states in hidden_states], cut,
                        np.array(ids[count:], "<i4"), logits[count:])

    def choose_prompt(self, case: Case) -> tuple[np.ndarray, list[Expected]]:
        """A prompt on which no router is undecided, with all experts and, if the case has `one_expert`, with
        one."""
        wanted = [None, 1] if case.one_expert else [None]
        vocabulary = self.config["vocab_size"]
        for seed in range(TRIES):
            prompt = np.random.default_rng(seed).integers(0, vocabulary, case.positions)
            prompt[:2] = 0, vocabulary - 1
            found = [self.expect(prompt, case.greedy, experts) for experts in wanted]
            if min(expected.margin() for expected in found) > MARGIN:
                return prompt, found
        raise AssertionError(f"{TRIES} prompts, and on each a router is undecided")

    def sees(self, change: dict, prompt: np.ndarray, expected: Expected) -> None:
        """Logits depend on these values of the config, by far more than the tolerance."""
        found = forward_of({**self.config, **change}, self.numbers, prompt)[0]
        difference = np.abs(found - expected.logits).max()
        assert difference > 20 * MAX_ERROR, f"{change} changes logits by {difference:.1e} only"


def write_golden(path: pathlib.Path, prompt: np.ndarray, expected: Expected) -> pathlib.Path:
    def f32(numbers: np.ndarray) -> Tensor:
        return Tensor("F32", np.ascontiguousarray(numbers, "<f4"))

    def i32(numbers: np.ndarray) -> Tensor:
        return Tensor("I32", np.ascontiguousarray(numbers, "<i4"))

    tensors: Tensors = {"input_ids": i32(prompt), "logits": f32(expected.logits),
                        "hidden_states": f32(np.stack(expected.hidden_states))}
    if len(expected.greedy_ids):
        tensors["greedy_ids"] = i32(expected.greedy_ids)
        tensors["greedy_logits"] = f32(expected.greedy_logits)
    for layer, routed in enumerate(expected.routers):
        if routed:
            for place, part in enumerate((f32(routed.logits), f32(routed.weights), i32(routed.ids))):
                tensors[f"layer.{layer}.router.{place}"] = part
    write_safetensors(path, tensors)
    return path


def check_layers(found: dict, expected: Expected) -> float:
    """Checks that every layer is close, or names the first that is not. Returns the largest hidden-state
    error."""
    layers = {layer["layer"]: layer for layer in found["layers"]}
    for number, routed in enumerate(expected.routers):
        layer = layers[number]
        hidden, weights = layer["max_hidden_error"], layer["max_router_weight_error"]
        assert hidden <= MAX_HIDDEN_ERROR, f"layer {number}: hidden states differ by {hidden:.1e}"
        if routed is None:
            assert layer["router_ids_equal"] is None and weights is None, f"layer {number} is dense: {layer}"
        else:
            assert layer["router_ids_equal"] is True, f"layer {number}: other experts"
            assert weights <= MAX_ROUTER_ERROR, f"layer {number}: router weights differ by {weights:.1e}"
    return max(layer["max_hidden_error"] for layer in layers.values())


def check_logits(found: dict, expected: Expected) -> None:
    error, count = found["max_logit_error"], len(expected.logits)
    assert 0 <= found["mean_logit_error"] <= error <= MAX_ERROR, f"logits differ by {error:.1e}"
    assert found["positions"] == count, f"{found['positions']} positions of {count}"
    clear = (gaps(expected.logits) > 2 * MAX_ERROR).mean()
    assert found["top1_agreement"] >= clear - 1e-9, f"{found['top1_agreement']} agree, {clear} are clear"
    assert found["greedy_match"] is (True if len(expected.greedy_ids) else None), found["greedy_match"]


class Runner:
    def __init__(self, program: Program, folder: pathlib.Path) -> None:
        self.program, self.folder = program, folder
        self.passed = self.failed = 0

    def step(self, name: str, check: Callable[[pathlib.Path], str]) -> None:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            try:
                said = check(pathlib.Path(folder))
                print(f"ok      {name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
                self.passed += 1
            except AssertionError as problem:
                print(f"FAILED  {name}: {problem}", flush=True)
                self.failed += 1

    def prepare(self, case: Case, folder: pathlib.Path) -> tuple[Reference, pathlib.Path]:
        """The reference for the numbers of the checkpoint or, if pack quantizes, for the packed numbers."""
        source, packed = folder / "source", folder / "packed"
        case.write(source)
        self.program.pack(source, packed, case.bits)
        model = reference_reader.read_checkpoint(source)
        quantizes = case.bits in (4, 8)
        numbers = read_packed(packed).numbers if quantizes else Decoded(model.matrices)
        return Reference(model.config, numbers), packed

    def check(self, case: Case) -> Callable[[pathlib.Path], str]:
        def whole_case(folder: pathlib.Path) -> str:
            reference, packed = self.prepare(case, folder)
            prompt, [expected, *with_one] = reference.choose_prompt(case)
            for change in case.seen:
                reference.sees(change, prompt, expected)
            golden = write_golden(folder / "golden.safetensors", prompt, expected)

            found = self.program.evaluate(packed, golden, "--layers")
            hidden = check_layers(found, expected)
            check_logits(found, expected)
            limit = ("--max-error", MAX_ERROR)
            for options in ((), *case.same) if case.same else ():
                other = self.program.evaluate(packed, golden, *limit, *options)
                same = other["logits_xxh3"] == found["logits_xxh3"]
                assert same, f"{' '.join(map(str, options)) or 'without --layers'}: other bits"
                check_logits(other, expected)
            for one in with_one:
                path = write_golden(folder / "one.safetensors", prompt, one)
                only_one = self.program.evaluate(packed, path, *limit, "--top-experts", 1)
                check_logits(only_one, one)
                assert only_one["logits_xxh3"] != found["logits_xxh3"], "--top-experts changes nothing"
            return f"logits {found['max_logit_error']:.1e} of {np.abs(expected.logits).max():.0f}, " \
                   f"hidden {hidden:.1e}"

        return whole_case

    def eval_notices(self, case: Case) -> Callable[[pathlib.Path], str]:
        """Checks that eval finds one wrong number in a golden."""
        def whole_case(folder: pathlib.Path) -> str:
            reference, packed = self.prepare(case, folder)
            prompt, [right, *_] = reference.choose_prompt(case)
            limit = ("--max-error", MAX_ERROR)

            def golden(change: Callable[[Expected], None]) -> pathlib.Path:
                wrong = dataclasses.replace(
                    right, logits=right.logits.copy(), greedy_ids=right.greedy_ids.copy(),
                    hidden_states=[states.copy() for states in right.hidden_states],
                    routers=[routed and Routed(*map(np.copy, dataclasses.astuple(routed)))
                             for routed in right.routers])
                change(wrong)
                return write_golden(folder / "wrong.safetensors", prompt, wrong)

            for place in ((0, 0), (-1, -1), (len(prompt) // 2, 300)):
                def nudge(wrong: Expected) -> None:
                    wrong.logits[place] += 2e-3

                found = self.program.evaluate(packed, golden(nudge), *limit, code=1)
                assert abs(found["max_logit_error"] - 2e-3) < MAX_ERROR, f"{place}: {found}"

            def no_number(wrong: Expected) -> None:
                wrong.logits[1, 1] = np.nan

            child = self.program.run("eval", packed, golden(no_number), "--json", *limit)
            assert child.returncode in (1, 3), f"a logit that is no number is accepted: {child.stdout}"

            def other_word(wrong: Expected) -> None:
                wrong.greedy_ids[-1] ^= 1

            found = self.program.run("eval", packed, golden(other_word), "--json")
            assert '"greedy_match":false' in found.stdout.replace(" ", ""), f"greedy ids: {found.stdout}"

            def other_expert(wrong: Expected) -> None:
                ids = wrong.routers[-1].ids
                ids[-1, -1] = min(set(range(wrong.routers[-1].logits.shape[-1])) - set(ids[-1]))
                wrong.hidden_states[1][-1, -1] += 0.01

            found = self.program.evaluate(packed, golden(other_expert), "--layers")
            first, last = found["layers"][0], found["layers"][len(right.routers) - 1]
            assert abs(first["max_hidden_error"] - 0.01) < MAX_HIDDEN_ERROR, first
            assert last["router_ids_equal"] is False, last
            return "6 wrong numbers"

        return whole_case


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    words = sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="shapes-test-") as name:
        run = Runner(Program(sys.argv[1]), pathlib.Path(name))
        for case in cases():
            if words and not any(word in case.name for word in words):
                continue
            run.step(case.name, run.check(case))
        for case in cases() if not words else ():
            if case.name.endswith("groups of 64") and " 4-bit" in case.name and "cut" not in case.name:
                run.step(f"eval notices, {case.name}",
                         run.eval_notices(dataclasses.replace(case, greedy=2)))
    print(f"{run.passed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
