#!/usr/bin/env python3
"""golden_chat_test.py PROGRAM: the commands that generate text, without a terminal.

Each conversation of tests/goldens/tern/golden_chat.json gets its prompt, its token ids and its reply from
`template`, from `run` and from the loop of `chat`. Then what the flags of these commands promise
(talk_checks.py), and text to ids and back (tokenize_checks.py). All runs on one thread, but where threads are
the subject.
"""

import functools
import json
import pathlib
import re
import sys
import tempfile
from typing import Any

import talk_checks
import tokenize_checks
from sandbox import ROOT, TERN, Argument, Sandbox, run_checks

CASES = json.loads((ROOT / "tests" / "goldens" / "tern" / "golden_chat.json").read_text(encoding="utf-8"))
GREEDY: tuple[Argument, ...] = ("--precision", "exact", "--temp", 0, "-t", 1)

Case = dict[str, Any]


def calls_of(case: Case) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments of the calls in a reply of Tern, typed by the tools' schemas."""
    types = {tool["function"]["name"]: {key: value["type"] for key, value
                                        in tool["function"]["parameters"]["properties"].items()}
             for tool in case["tools"] or []}
    return [(name, {key: value if types[name][key] == "string" else json.loads(value)
                    for key, value in re.findall(r"<parameter=(\w+)>\n(.*?)\n</parameter>", body, re.S)})
            for name, body in re.findall(r"<tool_call>\n<function=(\w+)>\n(.*?)</function>\n</tool_call>",
                                         case["reply"], re.S)]


class Golden:
    """One conversation, as files."""

    def __init__(self, box: Sandbox, model: pathlib.Path, case: Case) -> None:
        self.box, self.model, self.case = box, model, case
        self.messages = box.file(f"{case['name']}.json", json.dumps(case["messages"], ensure_ascii=False))
        self.tools: tuple[Argument, ...] = ()
        if case["tools"]:
            self.tools = ("--tools", box.file(f"{case['name']}.tools.json", json.dumps(case["tools"])))

    def template(self) -> None:
        for folder in (TERN, self.model):
            prompt = self.box.run("template", folder, "--messages", self.messages, *self.tools)
            assert prompt.stdout == self.case["prompt"], f"{prompt.stdout!r}, not {self.case['prompt']!r}"
            assert prompt.stderr == "", prompt.stderr
        ids = self.box.run("template", self.model, "--messages", "-", "--ids", *self.tools,
                           stdin=self.messages.read_bytes())
        assert json.loads(ids.stdout) == self.case["prompt_ids"], ids.stdout

    def run(self) -> None:
        said = self.box.run("run", "-m", self.model, "--messages", self.messages, *self.tools, *GREEDY)
        assert said.stdout == self.case["reply"] + "\n", f"{said.stdout!r}, not {self.case['reply']!r}"
        assert re.search(r"^memory: ", said.stderr) and "tok/s" in said.stderr, said.stderr

    def run_json(self) -> None:
        said = self.box.run("run", "-m", self.model, "--messages", self.messages, "--json", "-q", *self.tools, *GREEDY)
        assert said.stderr == "" and said.stdout.count("\n") == 1, (said.stdout, said.stderr)
        answer, calls = json.loads(said.stdout), calls_of(self.case)
        assert answer["ids"] == self.case["greedy_ids"], answer
        assert answer["prompt_tokens"] == len(self.case["prompt_ids"]), answer
        assert answer["reply_tokens"] == len(self.case["greedy_ids"]), answer
        assert answer["finish_reason"] == ("tool_calls" if calls else "end_of_text"), answer
        self.check_message(answer["text"], answer.get("tool_calls", []))

    def chat(self) -> None:
        saved = self.box.folder / f"{self.case['name']}.saved.json"
        said = self.box.run("chat", "-m", self.model, *self.tools, *GREEDY,
                            stdin=f"/load {self.messages}\n/regen\n/save {saved}\n")
        calls = calls_of(self.case)
        if calls:
            shown = [re.fullmatch(r"→ (\w+) (.*)", line) for line in said.stdout.splitlines()]
            assert all(shown), said.stdout
            assert [(line[1], json.loads(line[2])) for line in shown if line] == calls, said.stdout
        else:
            assert said.stdout == self.case["reply"] + "\n", f"{said.stdout!r}, not {self.case['reply']!r}"
        count = len(self.case["messages"])
        assert f"loaded {count} message" in said.stderr and f"saved {count + 1} messages" in said.stderr, said.stderr
        messages = json.loads(saved.read_text(encoding="utf-8"))
        assert messages[:-1] == self.case["messages"], messages
        assert messages[-1]["role"] == "assistant", messages
        self.check_message(messages[-1]["content"], messages[-1].get("tool_calls", []))
        assert pathlib.Path(f"{saved}.state").stat().st_size > 0

    def chat_goes_on(self) -> None:
        """A saved and loaded conversation continues as if it had never ended, and runs only new tokens."""
        saved = self.box.folder / f"{self.case['name']}.saved.json"
        said = self.box.run("chat", "-m", self.model, *self.tools, *GREEDY, stdin=f"/load {saved}\nHello!\n")
        assert "its state is there" in said.stderr and " reused" in said.stderr, said.stderr
        messages = [*json.loads(saved.read_text(encoding="utf-8")), {"role": "user", "content": "Hello!"}]
        expected = self.box.run("run", "-m", self.model, "--messages", "-", *self.tools, *GREEDY,
                                stdin=json.dumps(messages))
        assert said.stdout == expected.stdout, f"{said.stdout!r}, not {expected.stdout!r}"

    def check_message(self, text: str, tool_calls: list[Any]) -> None:
        calls = calls_of(self.case)
        assert text == ("" if calls else self.case["reply"]), f"{text!r}"
        found = [(call["function"]["name"], call["function"]["arguments"]) for call in tool_calls]
        assert found == calls, f"{found}, not {calls}"
        assert all(call["type"] == "function" and call["id"] for call in tool_calls), tool_calls


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    assert len(CASES) == 25
    with tempfile.TemporaryDirectory(prefix="golden-chat-test-") as name:
        box = Sandbox(sys.argv[1], pathlib.Path(name))
        model = box.pack(TERN)
        goldens = [Golden(box, model, case) for case in CASES]
        checks = [(f"{golden.case['name']}: {way.__name__}", functools.partial(way, golden))
                  for golden in goldens
                  for way in (Golden.template, Golden.run, Golden.run_json, Golden.chat, Golden.chat_goes_on)]
        for module in (talk_checks, tokenize_checks):
            checks += [(check.__doc__ or "", functools.partial(check, box, model)) for check in module.CHECKS]
        return 1 if run_checks(checks) else 0


if __name__ == "__main__":
    sys.exit(main())
