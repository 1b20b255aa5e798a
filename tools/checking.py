"""What the checkers of the tree share: the list of its files, C++ split into code and comments, Markdown
without code blocks, and main()."""

import argparse
import os
import pathlib
import re
import subprocess

CPP = {".cpp", ".h", ".inl", ".c", ".cu", ".cuh"}
DATA = ("models/", "tests/goldens/", "tests/fuzz/corpus/")  # kept byte for byte as other programs wrote them
COMMENT_OR_LITERAL = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|R"(?P<delimiter>\w*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'',
    re.S,
)


def files_of(root):
    """Paths relative to `root` of the files that git tracks or would track; without git, all but build/."""
    listing = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False
    ) if (root / ".git").exists() else None
    if listing and listing.returncode == 0 and pathlib.Path(listing.stdout.strip()).resolve() == root.resolve():
        names = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=True,
        ).stdout.decode("utf-8", "surrogateescape").split("\0")
        return sorted(name for name in set(names) if name and os.path.lexists(root / name))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in {".git", "__pycache__"}]
        if pathlib.Path(folder) == root and "build" in folders:
            folders.remove("build")
        found += [pathlib.Path(folder, name).relative_to(root).as_posix() for name in names]
    return sorted(found)


def blank(text):
    """`text` as spaces; newlines stay, so positions keep their lines and columns."""
    return re.sub(r"[^\n]", " ", text)


def code_only(text):
    """C++ `text` with comments and literals blanked."""
    return COMMENT_OR_LITERAL.sub(lambda match: blank(match[0]), text)


def comments_only(text):
    """C++ `text` with everything but the comments blanked."""
    kept, end = [], 0
    for match in COMMENT_OR_LITERAL.finditer(text):
        if match["comment"]:
            kept += [blank(text[end : match.start()]), match[0]]
            end = match.end()
    return "".join([*kept, blank(text[end:])])


def without_code_blocks(text):
    """Markdown with the lines of code blocks emptied."""
    lines, fence = [], None
    for line in text.splitlines():
        marker = re.match(r"\s*(```|~~~)", line)
        if marker and fence in (None, marker[1]):
            fence = None if fence else marker[1]
            lines.append("")
        else:
            lines.append("" if fence else line)
    return "\n".join(lines)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def main(check, description):
    """Prints one line per problem that `check(root)` finds; the exit status is 1 if there is any."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    problems = check(parser.parse_args().root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0
