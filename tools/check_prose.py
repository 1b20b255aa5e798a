#!/usr/bin/env python3
"""Checks comments and documents: lines of at most 110 columns, and none of the phrases that we do not write.

  - C++, CUDA, Python, shell and CMake: no line whose comment or docstring goes past column 110
  - Markdown: no line of prose past column 110; tables, code blocks and lines that cannot break are exempt
  - comments and docstrings of C++, CUDA, Python, shell and CMake, and prose of Markdown: none of PHRASES

The folders in NOT_YET_CLEAN are exempt until they are clean; from then on their entry is a violation itself,
so the list only shrinks. Prints one line per violation, "path:line: what", and exits 1 if there is any.
"""

import io
import pathlib
import re
import sys
import tokenize

import checking
from checking import CPP, DATA, comments_only, files_of, line_of, without_code_blocks

COLUMN_LIMIT = 110
EXEMPT = (*DATA, "tests/data/", "tests/chat/screens/")
WRITTEN_HERE = {"models/tern/README.md", "tests/goldens/README.md"}  # the files below EXEMPT that are checked
# Comments that must stay on one line.
DIRECTIVE = re.compile(r"//\s*clang-format|#\s*(?:shellcheck|noqa|ruff|pylint|type:)")
NOT_YET_CLEAN = []

UNIT = r"(?:bytes?|tokens?|rows?|products?|kB|KiB|MB|MiB|GB|GiB|ms|µs|us|one|once|twice|two|three|four|\d+)"
THING = (r"(?:token|layer|second|row|column|expert|step|session|head|thread|core|block|group|tile|record|slot|matrix|"
         r"processor|socket|position|model|file|line|process|instruction set|target|test|family)")
# Pattern and advice; a blank in a pattern stands for white space, a line break included.
PHRASES = {
    r"\bso many\b": "name the quantity",
    r"\b(?:who|what|which|when|where)ever (?:it|he|they) (?:wants?|likes?|pleases?)\b": "say which",
    r"\b(?:whoever|somebody|nobody|anybody|everybody|someone)\b": "name the part of the program or the user",
    r"\bask(?:s|ed|ing)? ahead\b": "write 'prefetch'",
    rf"\b{UNIT} an? {THING}\b(?! (?:is|was|has)\b)": "write 'per'",
    r"\bof (?:its|their) own accord\b": "say what triggers it",
    r"\b(?:is|are|was|were) told\b": "say what is passed, returned or reported",
    r"\bthe words of (?:sixteen )?lanes\b": "write 'vector operations'",
    r"\bpast the caches\b": "write 'non-temporal'",
    r"\bbehind our back\b": "say what happens",
    r"\bthe machine's mood\b": "write 'host load'",
    r"\bhas to be thought about\b": "say what to do",
}
BLANK = r"[ \t]*(?:[ \t]|\n[ \t]*)"
BANNED = [(re.compile(pattern.replace(" ", BLANK), re.I), advice) for pattern, advice in PHRASES.items()]


def hash_comments_only(text):
    """The comments of a shell script, Makefile or CMake file, each on its line and at its column."""
    found = (re.match(r"(?:[^\"'#]|\"[^\"]*\"|'[^']*')*?(?:^|(?<=\s))(#.*)", line) for line in text.splitlines())
    return "\n".join(" " * match.start(1) + match[1] if match else "" for match in found)


def python_comments_only(text):
    """The comments and docstrings of a Python file, each on its lines and at its columns."""
    lines = [""] * (text.count("\n") + 2)
    previous = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_statement = previous in {None, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        if token.type == tokenize.COMMENT or token.type == tokenize.STRING and is_statement:
            first_row, column = token.start
            for row, line in enumerate(token.string.splitlines(), first_row):
                lines[row] = lines[row].ljust(column if row == first_row else 0) + line
        if token.type not in {tokenize.COMMENT, tokenize.NL}:
            previous = token.type
    return "\n".join(lines[1:])


def can_break(line):
    """Whether a line of Markdown has a blank that a line break could replace."""
    body = re.sub(r"^\s*(?:[-*+>]|\d+\.|#+)\s+", "", line).strip()
    return " " in body


def is_cpp(path):
    return path.suffix in CPP or path.name.endswith(".cpp.in")


def comments_of(path, text):
    """The comments and docstrings of a file that is not Markdown, each on its lines and at its columns."""
    if is_cpp(path):
        return comments_only(text)
    return python_comments_only(text) if path.suffix == ".py" else hash_comments_only(text)


def long_lines(name, text):
    """Lines of code whose comment or docstring, and lines of Markdown whose prose goes past the limit."""
    path = pathlib.PurePath(name)
    if path.suffix == ".md":
        for number, line in enumerate(without_code_blocks(text).splitlines(), 1):
            if len(line) > COLUMN_LIMIT and not line.lstrip().startswith("|") and can_break(line):
                yield f"{name}:{number}: {len(line)} columns of prose, the limit is {COLUMN_LIMIT}"
    else:
        for number, line in enumerate(comments_of(path, text).splitlines(), 1):
            columns = len(line.rstrip())
            if columns > COLUMN_LIMIT and not DIRECTIVE.match(line.lstrip()):
                yield f"{name}:{number}: a comment goes to column {columns}, the limit is {COLUMN_LIMIT}"


def prose_of(path, text):
    """What people read in a file, with everything else blanked."""
    if path.suffix == ".md":
        return re.sub(r"`[^`\n]*`", lambda match: "`" * len(match[0]), without_code_blocks(text))
    return comments_of(path, text)


def joined(prose):
    """`prose` with the comment marks at line starts blanked, so that phrases are found across lines."""
    return re.sub(r"\n[ \t]*(?://+|#+|>|\*)?[ \t]*", lambda match: "\n" + " " * (len(match[0]) - 1), prose)


def phrases(name, text):
    """The banned phrases of a file."""
    prose = joined(prose_of(pathlib.PurePath(name), text))
    found = sorted((match.start(), " ".join(match[0].split()), advice)
                   for pattern, advice in BANNED for match in pattern.finditer(prose))
    for position, words, advice in found:
        yield f"{name}:{line_of(prose, position)}: '{words}': {advice}"


def is_prose(name):
    path = pathlib.PurePath(name)
    if name.startswith(EXEMPT) and name not in WRITTEN_HERE:
        return False
    if is_cpp(path) or path.suffix in {".py", ".md", ".sh", ".cmake"}:
        return True
    return path.name in {"CMakeLists.txt", "Makefile", "run"}


def problems_of(root):
    """Every violation of the tree, without exemptions, as (path, message)."""
    for name in files_of(root):
        if not is_prose(name) or (root / name).is_symlink():
            continue
        text = (root / name).read_text(encoding="utf-8")
        yield from ((name, problem) for problem in long_lines(name, text))
        yield from ((name, problem) for problem in phrases(name, text))


def check(root, not_yet_clean=None):
    """Every violation in the tree under `root` outside of the exempt folders, one line each."""
    exempt = NOT_YET_CLEAN if not_yet_clean is None else not_yet_clean
    needed, problems = set(), []
    for name, problem in problems_of(root):
        folders = [folder for folder in exempt if name == folder or name.startswith(folder + "/")]
        needed.update(folders)
        if not folders:
            problems.append(problem)
    problems += [f"tools/check_prose.py: {folder} is clean: remove it from NOT_YET_CLEAN"
                 for folder in sorted(set(exempt) - needed)]
    return problems


if __name__ == "__main__":
    sys.exit(checking.main(check, "Checks comments and documents."))
