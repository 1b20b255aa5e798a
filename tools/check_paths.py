#!/usr/bin/env python3
"""Checks that the files and folders that documents and comments name exist.

  - Markdown, in back-ticks: a path to a source file or document, a path that begins with a folder of the
    root, and a folder/ that begins with a layer exist below the root or src/; a bare name belongs to exactly
    one file
  - Markdown: a relative link leads to a file or folder
  - comments of C++ and CUDA: a path with a folder is the end of the path of a file

Paths may be globs, and NAME, FOLDER and FAMILY stand for any word. Code blocks are exempt, and so are the
back-ticks of CHANGELOG.md, which describes the past. Prints one line per violation, "path:line: what", and
exits 1 if there is any.
"""

import collections
import re
import sys

import checking
from checking import CPP, DATA, comments_only, files_of, line_of, without_code_blocks

OTHER_PROGRAMS = {"llama.cpp", "ik_llama.cpp"}
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
FILE = re.compile(r"[\w.*/-]*(?:\w\w|\*)\.(?:h|cpp|cu|cuh|c|inl|py|sh|cmake|md)")  # but not x.c, a member
FILE_IN_COMMENT = re.compile(rf"(?<![\w.*/<:-])(?=[^\s/]+/){FILE.pattern}(?![\w/-]|\.\w)")
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
ANY_WORD = re.compile(r"\\\*|NAME|FOLDER|FAMILY")


class Tree:
    """The names by which documents may refer to the files and folders under a root."""

    def __init__(self, files):
        splits = [name.split("/") for name in files]
        self.paths = {"/".join(parts[:i]) for parts in splits for i in range(1, len(parts) + 1)}
        self.roots = {parts[0] for parts in splits if len(parts) > 1}
        self.layers = {parts[1] for parts in splits if parts[0] == "src" and len(parts) > 2}
        self.ends = collections.Counter("/".join(parts[i:]) for parts in splits for i in range(len(parts)))

    def problem_of(self, word):
        """What is wrong with a word in back-ticks, or None."""
        if not PATH.fullmatch(word) or word in OTHER_PROGRAMS | self.paths:
            return None
        first, is_file = word.split("/")[0], FILE.fullmatch(word)
        if "/" in word:
            is_ours = is_file or first in self.roots or word.endswith("/") and first in self.layers
            name = word.rstrip("/")
            exists = not is_ours or matches(name, self.paths) or matches("src/" + name, self.paths)
            return None if exists else "does not exist"
        if not is_file or matches(word, self.ends) and self.ends[word] < 2:
            return None
        return f"is the name of {self.ends[word]} files: add a folder" if self.ends[word] else "does not exist"


def matches(pattern, names):
    """Whether one of `names` is `pattern`, in which a wildcard stands for a part of one component."""
    if not ANY_WORD.search(re.escape(pattern)):
        return pattern in names
    regex = re.compile(ANY_WORD.sub("[^/]*", re.escape(pattern)))
    return any(map(regex.fullmatch, names))


def check_links(root, name, text):
    for match in LINK.finditer(text):
        is_relative = "://" not in match[1] and not match[1].startswith("mailto:")
        if is_relative and not (root / name).parent.joinpath(match[1]).exists():
            yield f"{name}:{line_of(text, match.start())}: a link to a file that does not exist ({match[1]})"


def check_quoted(tree, name, text):
    prose = without_code_blocks(text)
    for match in QUOTED.finditer(prose):
        for word in match[1].split():
            if problem := tree.problem_of(word):
                yield f"{name}:{line_of(prose, match.start())}: {word} {problem}"


def check_comments(tree, name, text):
    comments = comments_only(text)
    for match in FILE_IN_COMMENT.finditer(comments):
        if not matches(match[0], tree.ends):
            yield f"{name}:{line_of(comments, match.start())}: {match[0]} does not exist"


def check(root):
    """Every violation in the tree under `root`, one line each."""
    files = files_of(root)
    tree, problems = Tree(files), []
    for name in files:
        path = root / name
        if path.is_symlink() or path.suffix not in CPP | {".md"} or name.startswith(DATA):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix in CPP:
            problems += check_comments(tree, name, text)
            continue
        problems += check_links(root, name, text)
        if name != "CHANGELOG.md":
            problems += check_quoted(tree, name, text)
    return problems


if __name__ == "__main__":
    sys.exit(checking.main(check, "Checks that the paths in documents and comments exist."))
