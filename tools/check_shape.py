#!/usr/bin/env python3
"""Checks the shape of the sources: short functions, and folders that fit on a screen.

  - no function of C++, CUDA or Python is longer than 70 lines, from its first line to its closing brace
  - no folder has more than 40 code files, not counting those of its subfolders

(check_tree.py limits the length of files.)

Reads C++ by its braces, not with a compiler: a brace at namespace or class scope whose head has parentheses
opens a function. Prints one line per violation, "path:line: what", and exits 1 if there is any.
"""

import ast
import collections
import pathlib
import re
import sys

import checking
from checking import CPP, DATA, blank, code_only, files_of, line_of

FUNCTION_LIMIT = 70
FOLDER_LIMIT = 40
CODE = CPP | {".py", ".sh", ".js"}

DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
TEMPLATE = re.compile(r"^\s*template\s*<")
ACCESS = re.compile(r"^\s*(?:public|protected|private)\s*:(?!:)")
SCOPE = re.compile(r"^(?:\[\[\w+\]\]\s*|inline\s+|export\s+|typedef\s+|static\s+|constexpr\s+)*"
                   r"(?:namespace|class|struct|union|enum|extern)\b")


def without_template(head):
    """`head` without leading access specifiers and template parameter lists."""
    while True:
        if match := ACCESS.match(head):
            head = head[match.end() :]
        elif match := TEMPLATE.match(head):
            depth, end = 1, match.end()
            while depth and end < len(head):
                depth += {"<": 1, ">": -1}.get(head[end], 0)
                end += 1
            head = head[end:]
        else:
            return head.strip()


def kind_of(head):
    """What a brace after `head` opens at namespace or class scope: a scope, a function or data."""
    head = without_template(head)
    if SCOPE.match(head) and not re.search(r"\)\s*(?:const|noexcept|override|final|\s)*$", head):
        return "scope"
    return "function" if "(" in head and not head.endswith("=") else "data"


def name_of(head):
    head = " ".join(without_template(head).split())
    if test := re.match(r"\w*(?:TEST|PROP)\w*\([^)]*\)|MF_\w+\([^)]*\)", head):
        return test[0]
    match = re.search(r"(operator\s*\(\)|operator\s*[^\s(\w]+|~?[\w:]+)\s*\(", head)
    return match[1] if match else head


def functions_of(text):
    """(name, first line, lines) of every function that C++ `text` defines."""
    code = DIRECTIVE.sub(lambda match: blank(match[0]), code_only(text))
    kinds, begin = [], 0  # the open braces; where the head of the next one begins
    for match in re.finditer(r"[{};]", code):
        position = match.start()
        outside = all(kind == "scope" for kind, _ in kinds)
        if match[0] == "{":
            kinds.append((kind_of(code[begin:position]) if outside else "inner", begin))
            if kinds[-1][0] == "scope":
                begin = position + 1
        elif match[0] == ";":
            begin = position + 1 if outside else begin
        elif kinds:
            kind, head = kinds.pop()
            if kind == "inner" or kind != "scope" and re.match(r"\s*[,{]", code[position + 1 :]):
                continue  # an initializer of a constructor: the head of its body goes on
            if kind == "function":
                words = ACCESS.sub(lambda found: blank(found[0]), code[head:position])
                first = line_of(code, head + len(words) - len(words.lstrip()))
                yield name_of(code[head:position].split("{")[0]), first, line_of(code, position) - first + 1
            begin = position + 1


def python_functions_of(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def check_functions(root, names):
    for name in names:
        suffix = pathlib.PurePath(name).suffix
        if suffix not in CPP | {".py"}:
            continue
        text = (root / name).read_text(encoding="utf-8")
        for function, line, lines in (python_functions_of if suffix == ".py" else functions_of)(text):
            if lines > FUNCTION_LIMIT:
                yield f"{name}:{line}: {function} has {lines} lines, the limit is {FUNCTION_LIMIT}"


def check_folders(names):
    counts = collections.Counter(pathlib.PurePath(name).parent.as_posix() for name in names)
    for folder, count in sorted(counts.items()):
        if count > FOLDER_LIMIT:
            yield f"{folder}: {count} code files, the limit is {FOLDER_LIMIT}: sort them into folders"


def check(root):
    """Every violation in the tree under `root`, one line each."""
    names = [name for name in files_of(root)
             if pathlib.PurePath(name).suffix in CODE and not name.startswith(DATA) and not (root / name).is_symlink()]
    return [*check_functions(root, names), *check_folders(names)]


if __name__ == "__main__":
    sys.exit(checking.main(check, "Checks the lengths of functions and the sizes of folders."))
