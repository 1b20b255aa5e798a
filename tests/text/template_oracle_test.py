"""template_oracle_test.py RENDER_LINES: the template engine against Jinja2 as Hugging Face configures it.

Renders the same templates with both: templates of models, a table of every construct, and thousands of random
templates. Both must succeed or both must fail; messages may differ. Then checks which text is marked as data.
"""

import json
import pathlib
import subprocess
import sys

import hugging_face_jinja
import model_templates
import random_templates
import template_cases
import template_expressions

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Intended differences from Jinja2 3.1.2; see docs/templates.md.
KNOWN = {
    "{{ '%c' % 65 }}": "%c",
    "{{ s.replace(old='l', new='x') }}": "Python's str.replace takes no names",
    "{{ html|e|e }}": "escaped text is not marked as escaped",
}


class Program:
    """Runs render_lines with one request per line."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, requests):
        text = "".join(json.dumps(request) + "\n" for request in requests).encode()
        out, _ = self.process.communicate(text)
        answers = [json.loads(line) for line in out.decode().splitlines()]
        assert self.process.returncode == 0 and len(answers) == len(requests), "the program ended early"
        return answers


def compare(program_path, name, requests):
    """Renders all requests with both engines; prints and counts the differences."""
    answers = Program(program_path).ask(requests)
    differences = refusals = 0
    for request, answer in zip(requests, answers):
        if request["template"] in KNOWN:
            continue
        variables = model_templates.variables_of(request)
        expected, failure = hugging_face_jinja.render(request["template"], variables)
        # Not compared: addresses of Python objects; slices of constants, which Jinja2 computes differently
        # from slices of variables; and escaped text, which has its own class there.
        if expected is not None and (" at 0x" in expected or "Markup(" in expected
                                     or "has no slices" in answer.get("error", "")):
            continue
        if expected is None:
            same = "error" in answer
        elif "error" in answer and "does not fit in 64 bits" in answer["error"]:
            refusals += 1
            same = True
        else:
            same = answer.get("text") == expected
        if not same:
            differences += 1
            if differences <= 30:
                print(f"{name}: {request['template'][:300]!r}\n  jinja2: {failure or repr(expected)}\n"
                      f"  ours:   {answer.get('error') or repr(answer.get('text'))}")
    print(f"{name}: {len(requests)} templates, {differences} differences, {refusals} numbers too large for us")
    return differences


def table_requests():
    templates = ["{{ " + expression + " }}" for expression in template_expressions.EXPRESSIONS if expression]
    return [{"template": template, "variables": template_cases.VARIABLES}
            for template in templates + template_cases.STATEMENTS]


def main():
    program = sys.argv[1]
    failures = compare(program, "table", table_requests())
    failures += compare(program, "random", random_templates.requests(seed=20241109, count=6000))
    models = model_templates.all_templates(ROOT)
    requests = model_templates.requests(models)
    failures += compare(program, "models", requests)
    failures += model_templates.check_marks(lambda asked: Program(program).ask(asked), models)
    print("FAILED" if failures else "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
