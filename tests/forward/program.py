"""Runs `moeflux pack` and `moeflux eval`, and checks that their output has the documented form."""

import json
import pathlib
import re
import subprocess
from typing import Any, Optional, Union

KEYS = {"max_logit_error", "mean_logit_error", "top1_agreement", "greedy_match", "positions", "logits_xxh3"}
ISAS = ("scalar", "avx2", "avxvnni", "avx512", "avx512vnni")
PATIENCE_S = 600


class Program:
    def __init__(self, path: str) -> None:
        self.path = path

    def run(self, *arguments: Union[str, int, float, pathlib.Path]) -> "subprocess.CompletedProcess[str]":
        command = [self.path, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def pack(self, source: pathlib.Path, destination: pathlib.Path, bits: Optional[int] = None) -> None:
        wanted = ["--bits", bits] if bits else []
        child = self.run("pack", source, destination, "--jobs", 1, *wanted)
        assert child.returncode == 0, f"pack exits with {child.returncode}: {child.stderr.strip()}"

    def evaluate(self, model: pathlib.Path, golden: pathlib.Path, *options: Union[str, int, float],
                 code: int = 0) -> dict[str, Any]:
        """The object that eval prints, also when its exit status is 1."""
        child = self.run("eval", model, golden, "--json", *options)
        words = " ".join(map(str, options))
        assert child.returncode == code, (
            f"eval {words} exits with {child.returncode}: {first_lines(child.stderr or child.stdout)}")
        found = json.loads(child.stdout)
        assert KEYS <= set(found), f"eval {words} does not say {sorted(KEYS - set(found))}"
        assert re.fullmatch(r"[0-9a-f]{32}", found["logits_xxh3"]), f"no hash: {found['logits_xxh3']!r}"
        assert found["greedy_match"] in (True, False, None), f"greedy_match is {found['greedy_match']!r}"
        return found

    def isas(self, model: pathlib.Path, golden: pathlib.Path) -> list[str]:
        """The instruction sets that this processor runs. For any other, eval exits with 2 and names it."""
        usable = []
        for isa in ISAS:
            child = self.run("eval", model, golden, "--json", "--isa", isa)
            if child.returncode == 2:
                assert isa in child.stderr, f"--isa {isa} is refused without being named: {child.stderr}"
            else:
                assert child.returncode == 0, f"--isa {isa} exits with {child.returncode}: {child.stderr}"
                usable.append(isa)
        assert "scalar" in usable, "the scalar kernels run everywhere"
        return usable


def first_lines(text: str, count: int = 3) -> str:
    return " / ".join(text.strip().splitlines()[:count])[:600]
