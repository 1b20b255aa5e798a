#!/usr/bin/env python3
"""inspect_test.py BINARY: the page, its JSON and the files say the same, and the program minds its manners.

For every golden, the bundled model, the original's artifacts and a checkpoint with skipped tensors, `inspect`
is compared with an independent reading of the files (reference_reader). Then exit codes, and what goes where.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import reference_reader
from write_original import write_original
from write_variants import variants

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "goldens" / "tiny"
BINARY = ""


def run(*arguments, stdout=subprocess.PIPE) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, check=False)


class Inspect(unittest.TestCase):
    maxDiff = None

    def answer(self, *arguments) -> str:
        """Standard output of a call that succeeds, says nothing else, and fits the page."""
        child = run(*arguments)
        self.assertEqual((child.returncode, child.stderr), (0, b""))
        text = child.stdout.decode("utf-8")
        self.assertTrue(text.endswith("\n"))
        if "--json" not in arguments:
            self.assertLessEqual(max(map(len, text.splitlines())), 100)
        return text

    def compare(self, path: pathlib.Path, model: reference_reader.Model) -> None:
        found = json.loads(self.answer("inspect", path, "--json"))
        page = self.answer("inspect", path)
        self.compare_with_files(found, model)
        self.compare_with_page(found, page)
        self.assertIn(str(path)[-80:], page)

    def compare_with_files(self, found: dict, model: reference_reader.Model) -> None:
        config = model.config
        self.assertEqual(found["bytes"], model.summary())
        self.assertEqual(found["layers"], config["num_hidden_layers"])
        self.assertEqual(found["dim"], config["hidden_size"])
        self.assertEqual(found["vocabulary"], config["vocab_size"])
        self.assertEqual(found["experts_per_token"], config["num_experts_per_tok"])
        self.assertEqual(found["experts_per_layer"], config.get("num_experts") or config["n_routed_experts"])
        self.assertEqual(found["expert_hidden_dim"], config["moe_intermediate_size"])
        self.assertEqual(found["experts"], len(list(model.experts())))
        self.assertEqual((found["files"], found["file_bytes"]), (model.files, model.file_bytes))
        if "num_experts" in config:
            kinds = {"linear_attention": "gated_delta_net", "full_attention": "gated_attention"}
            types = [kinds[kind] for kind in config["layer_types"]]
            self.assertEqual(found["family"], "qwen3_5_moe")
            self.assertEqual(found["mixers"], {kind: types.count(kind) for kind in types})
            self.assertEqual(found["mlps"], {"moe": len(types)})
        else:
            dense = config["first_k_dense_replace"]
            self.assertEqual(found["family"], "deepseek_v3")
            self.assertEqual(found["mixers"], {"mla": found["layers"]})
            self.assertEqual(found["mlps"], {"dense": dense, "moe": found["layers"] - dense})
        self.compare_encodings(found, model)

    def compare_encodings(self, found: dict, model: reference_reader.Model) -> None:
        expected: dict[str, dict[str, list[int]]] = {"resident_encodings": {}, "expert_encodings": {}}
        for name, matrix in model.matrices.items():
            uses = expected["expert_encodings" if ".mlp.experts." in name else "resident_encodings"]
            use = uses.setdefault(matrix.encoding(), [0, 0])
            use[0] += 1
            use[1] += matrix.total_bytes()
        for key, uses in expected.items():
            said = {use["encoding"].split(" (")[0]: [use["matrices"], use["bytes"]] for use in found[key]}
            self.assertEqual(said, uses)
            sizes = [use["bytes"] for use in found[key]]
            self.assertEqual(sizes, sorted(sizes, reverse=True))

    def compare_with_page(self, found: dict, page: str) -> None:
        lines = {line[:28].strip(): line for line in page.splitlines()}
        labels = {"resident": "bytes     resident", "largest_expert": "one expert",
                  "smallest_expert": "one expert", "experts_per_token": "experts per token",
                  "all_experts": "all experts", "skipped": "skipped"}
        for key, size in found["bytes"].items():
            if key == "skipped" and size == 0:
                self.assertNotIn("skipped", lines)
                continue
            self.assertIn(f" {size:,} B", lines[labels[key]])
        self.assertIn(f"in {found['experts']:,} experts", lines["all experts"])
        for use in found["resident_encodings"] + found["expert_encodings"]:
            self.assertIn(f"{use['encoding']}: {use['matrices']:,} matrices, {use['bytes']:,} B", page)
        self.assertRegex(page, rf"(?m)^format +{found['format']}, {found['files']} files?, "
                               rf"{found['file_bytes']:,} B")
        self.assertRegex(page, rf"(?m)^family +{found['family']}, width {found['dim']}, "
                               rf"vocabulary {found['vocabulary']:,}, context {found['max_positions']:,}")
        kinds = "; ".join(", ".join(f"{count} {kind}" for kind, count in found[key].items())
                          for key in ("mixers", "mlps"))
        self.assertRegex(page, rf"(?m)^layers +{found['layers']}: {kinds}$")
        self.assertRegex(page, rf"(?m)^experts +{found['experts_per_layer']} per layer, "
                               rf"{found['experts_per_token']} per token, hidden {found['expert_hidden_dim']},")
        said = re.sub(r"\s+", " ", page)
        for note in found["notes"]:
            self.assertIn(f"note {note}", said)
        self.assertEqual(len(re.findall(r"(?m)^note ", page)), len(found["notes"]))

    def test_agrees_with_every_golden(self):
        for path in [*sorted(TINY.iterdir()), ROOT / "models" / "tern"]:
            with self.subTest(path.name):
                self.compare(path, reference_reader.read_checkpoint(path))

    def test_agrees_with_the_original_s_artifacts(self):
        with tempfile.TemporaryDirectory() as name:
            for source in ("qwen35moe-tiny-mlx4", "deepseekv3-tiny-mlx4"):
                path = pathlib.Path(name) / source
                write_original(TINY / source, path, two_bit=True)
                self.compare(path, reference_reader.read_original(path / "artifacts", path / "root"))

    def test_shows_what_it_skips_and_experts_of_two_sizes(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "skipping"
            next(v for v in variants() if v.name == "qwen hf with mtp and vision").write(path)
            model = reference_reader.read_checkpoint(path)
            self.assertGreater(model.skipped_bytes, 0)
            self.compare(path, model)
            path = pathlib.Path(name) / "two sizes"
            next(v for v in variants() if v.name == "qwen mlx mixed overrides").write(path)
            model = reference_reader.read_checkpoint(path)
            self.assertLess(model.summary()["smallest_expert"], model.summary()["largest_expert"])
            self.compare(path, model)

    def test_check_decodes_every_weight(self):
        path = TINY / "deepseekv3-tiny-fp8"
        matrices = reference_reader.read_checkpoint(path).matrices.values()
        weights = sum(matrix.decode().size for matrix in matrices)
        found = json.loads(self.answer("inspect", "--json", "--check", path))
        self.assertEqual(found.pop("checked"), {"matrices": len(matrices), "weights": weights})
        self.assertEqual(found, json.loads(self.answer("inspect", "--json", path)))
        page = self.answer("inspect", "--check", path)
        self.assertIn(f"{weights:,} weights of {len(matrices)} matrices read and decoded, all finite", page)

    def test_takes_a_file_of_the_model_for_its_directory(self):
        path = TINY / "qwen35moe-tiny-mlx4"
        expected = self.answer("inspect", path)
        self.assertEqual(self.answer("inspect", path / "model.safetensors"), expected)
        self.assertEqual(self.answer("inspect", path / "config.json"), expected)

    def test_a_long_path_keeps_the_page_in_its_columns(self):
        for end in ("a" * 80, "ö" * 80, "ö" * 80 + "a"):  # one of the last two is cut within a character
            with tempfile.TemporaryDirectory() as name:
                path = pathlib.Path(name, "b" * 80, end)
                shutil.copytree(TINY / "deepseekv3-tiny-mlx4", path)
                found = json.loads(self.answer("inspect", path, "--json"))
                self.assertEqual(found["path"], str(path))
                self.assertIn(f"{end[-40:]}\n", self.answer("inspect", path))


class Manners(unittest.TestCase):
    def refused(self, code: int, *arguments) -> str:
        child = run(*arguments)
        self.assertEqual((child.returncode, child.stdout), (code, b""), arguments)
        message = child.stderr.decode()
        self.assertTrue(message.startswith("moeflux: "), message)
        return message

    def test_usage_errors_exit_with_2_and_point_at_help(self):
        golden = TINY / "deepseekv3-tiny-mlx4"
        for arguments in (["nonsense"], ["--nonsense"], ["inspect"], ["inspect", "--nonsense", golden],
                          ["inspect", golden, golden], ["help", "nonsense"],
                          ["inspect", golden, "--json=maybe"]):
            message = self.refused(2, *arguments)
            self.assertIn("moeflux help", message)
            self.assertEqual(message.count("\n"), 1, message)
        self.assertIn("inspect", self.refused(2))

    def test_help_and_version_go_to_standard_output(self):
        for arguments, telling in ((["--version"], "moeflux 0."), (["help"], "  inspect "),
                                   (["--help"], "  inspect "), (["-h"], "Exit codes"),
                                   (["help", "inspect"], "--check"), (["inspect", "--help"], "--json")):
            child = run(*arguments)
            self.assertEqual((child.returncode, child.stderr), (0, b""), arguments)
            self.assertIn(telling, child.stdout.decode())
            self.assertLessEqual(max(map(len, child.stdout.decode().splitlines())), 100, arguments)

    def test_what_is_no_model_exits_with_3_and_names_the_path(self):
        with tempfile.TemporaryDirectory() as name:
            empty, file = pathlib.Path(name, "empty"), pathlib.Path(name, "notes.txt")
            empty.mkdir()
            file.write_text("hello")
            for path in (empty, file, pathlib.Path(name, "missing"), file / "below"):
                message = self.refused(3, "inspect", path)
                self.assertIn(str(path), message)
                self.assertEqual(message.count("\n"), 1, message)

    def test_a_full_disk_behind_standard_output_exits_with_5(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            child = run("inspect", TINY / "deepseekv3-tiny-mlx4", stdout=full)
        self.assertEqual((child.returncode, child.stderr), (5, b"moeflux: cannot write to standard output\n"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: inspect_test.py BINARY")
    BINARY = sys.argv.pop()
    unittest.main()
