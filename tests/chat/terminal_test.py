#!/usr/bin/env python3
"""terminal_test.py [--record] PROGRAM: `moeflux chat` as its user sees it, in a terminal of 100 x 30.

Scenes are played in tmux: keys are pressed, and what the screen then shows is compared with
tests/chat/screens/*.txt. What differs between machines (rates, bytes, kernels) is a letter there; lines that
the terminal wraps are one line. Nothing waits for a time: the next key follows when the screen shows what it
answers. --record writes the screens anew; read them before they are committed.
"""

import difflib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from typing import Any, Callable

from pane import COLUMNS, SHELL_PROMPT, Pane
from sandbox import ROOT, TERN, Sandbox, run_checks

SCREENS = ROOT / "tests" / "chat" / "screens"
PROMPT = r"^>$\Z"  # an empty prompt at the end of the screen
ANSWERED = r"tok/s.*\n>$\Z"
GREEDY = "--temp 0 -t 1 --seed 1"
SETTLED_S = 60  # time for a screen to become the expected one


def without_numbers(screen: str) -> str:
    lines = []
    for line in screen.split("\n"):
        line = re.sub(r"^moeflux [\d.]+ · \w+ ·", "moeflux V · ISA ·", line)
        line = re.sub(r"^(experts +room for .*) · .*$", r"\1 · DRIVE", line)  # depends on the machine
        if "tok/s" in line or line.startswith(("memory", "state", "positions", "experts")):
            line = re.sub(r"\b\d+(?:[.,]\d+)*( [kKMGT]?B\b)?", lambda number: "N B" if number[1] else "N", line)
        lines.append(line)
    return "\n".join(lines)


class Scene:
    """A shell with `moeflux` on its path, in a separate terminal."""

    def __init__(self, box: Sandbox, pane: Pane, records: bool) -> None:
        self.box, self.pane, self.records = box, pane, records

    def start(self, arguments: str = GREEDY, command: str = "moeflux chat -m tern") -> None:
        self.pane.wait_for(rf"^{re.escape(SHELL_PROMPT)}$\Z")
        self.pane.type(f"{command} {arguments}".rstrip())
        self.pane.press("Enter")
        self.pane.wait_for(PROMPT)

    def say(self, text: str, until: str = ANSWERED) -> None:
        """Types a line and waits for the text that follows it."""
        self.pane.type(text)
        self.pane.wait_for(rf"^> {re.escape(text)}$\Z")
        self.pane.press("Enter")
        self.pane.wait_for(rf"^> {re.escape(text)}$\n(?s:.*){until}")

    def order(self, text: str) -> None:
        """Types a command that answers at once."""
        self.say(text, until=PROMPT)

    def press(self, *keys: str, until: str) -> str:
        self.pane.press(*keys)
        return self.pane.wait_for(until)

    def shows(self, name: str) -> None:
        path = SCREENS / f"{name}.txt"
        if self.records:
            SCREENS.mkdir(exist_ok=True)
            path.write_text(without_numbers(self.pane.screen()) + "\n", encoding="utf-8")
            return
        expected, found = path.read_text(encoding="utf-8").rstrip("\n"), ""

        def is_shown(screen: str) -> bool:
            nonlocal found
            found = without_numbers(screen)
            return found == expected

        try:
            self.pane.wait(f"the screen {name}", is_shown, SETTLED_S)
        except AssertionError:
            difference = difflib.unified_diff(expected.split("\n"), found.split("\n"), "expected", "shown", lineterm="")
            raise AssertionError(f"the screen {name} is another one:\n" + "\n".join(difference)) from None

    def leaves(self, *keys: str) -> None:
        """After `keys` the shell is back: it echoes input, and the terminal's settings are restored."""
        if keys:
            self.pane.press(*keys)
        self.pane.wait_for(rf"^{re.escape(SHELL_PROMPT)}$\Z")
        self.pane.type("stty -g > after")
        self.pane.wait_for(r"stty -g > after$\Z")
        self.pane.press("Enter")
        self.pane.wait_for(rf"after\n{re.escape(SHELL_PROMPT)}$\Z")
        before, after = (self.box.folder.joinpath(name).read_text(encoding="ascii") for name in ("before", "after"))
        assert before == after, f"the terminal was {before.strip()}, now it is {after.strip()}"

    def saved(self, name: str = "saved.json") -> list[dict[str, Any]]:
        self.order(f"/save {name}")
        return json.loads((self.box.folder / name).read_text(encoding="utf-8"))


def first_minute(scene: Scene) -> None:
    """a question is typed, edited with the arrows and answered; /help and /stats explain; /quit leaves"""
    scene.start()
    scene.shows("banner")
    scene.pane.type("Wat is 17 + 25")
    scene.press("Home", "Right", until=r"^> Wat")
    scene.pane.type("h")
    scene.press("End", until=r"^> What is 17 \+ 25$\Z")
    scene.pane.type("?")
    scene.press("Enter", until=ANSWERED)
    scene.shows("first_answer")
    scene.order("/help")
    scene.order("/stats")
    scene.shows("help_and_stats")
    scene.pane.type("/quit")
    scene.leaves("Enter")


def pasted_lines(scene: Scene) -> None:
    """two pasted lines wait for Enter and are one message"""
    scene.start()
    scene.pane.paste("What is\n17 + 25?")
    scene.pane.wait_for(r"17 \+ 25\?$\Z")
    scene.shows("pasted")
    scene.press("Enter", until=ANSWERED)
    scene.shows("pasted_answer")
    messages = scene.saved()
    assert messages[0] == {"role": "user", "content": "What is\n17 + 25?"} and len(messages) == 2, messages
    scene.leaves("C-d")


def several_lines_typed(scene: Scene) -> None:
    """a backslash, Alt-Enter and three quotes make a text of several lines"""
    scene.start(GREEDY + " -n 3")
    for number, (first, key, second) in enumerate((("one \\", "Enter", "two"), ("one", "M-Enter", "two"),
                                                   ('"""one', "Enter", 'two"""'))):
        scene.pane.type(first)
        scene.press(key, until=r"^\.\.\.$\Z")
        scene.pane.type(second)
        scene.press("Enter", until=rf"^\.\.\. {second}$\n(?s:.*){ANSWERED}")
        text = scene.saved()[2 * number]["content"]
        assert text.split() == ["one", "two"] and text.count("\n") == 1 and '"' not in text, repr(text)
    scene.shows("several_lines")
    scene.leaves("C-d")


def conversation_is_edited(scene: Scene) -> None:
    """/undo, /regen, /system and /clear change the conversation; Ctrl-L clears the screen"""
    scene.start()
    scene.press("C-l", until=r"\A>$\Z")
    scene.say("What is the capital of Norway?")
    scene.say("What is 17 + 25?")
    scene.order("/undo")
    scene.say("/regen")
    scene.order("/system")
    scene.order("/system Be brief.")
    messages = scene.saved()
    assert [message["role"] for message in messages] == ["system", "user", "assistant"], messages
    assert messages[0]["content"] == "Be brief." and messages[2]["content"] == "The capital of Norway is Oslo.", messages
    scene.order("/clear")
    assert [message["role"] for message in scene.saved()] == ["system"]
    scene.order("/undo")
    scene.order("/regen")
    scene.shows("edited")
    scene.leaves("C-d")


def saved_and_loaded(scene: Scene) -> None:
    """a conversation is saved, cleared, loaded and continued; a file that cannot be loaded is reported"""
    scene.start()
    scene.say("What is the capital of Norway?")
    scene.order("/save talk.json")
    scene.order("/clear")
    scene.order("/load nothing.json")
    scene.order("/load talk.json")
    scene.say("What is 17 + 25?")
    scene.shows("loaded")
    assert len(scene.saved()) == 4
    scene.leaves("C-d")


def unknown_commands(scene: Scene) -> None:
    """an unknown command and a missing argument are reported; the model is not asked"""
    scene.start()
    for command in ("/nonsense", "/save", "/load", "/tool", "/"):
        scene.order(command)
    scene.press("Enter", until=r"^>\n>$\Z")
    scene.shows("unknown")
    scene.leaves("C-d")


def keys_and_history(scene: Scene) -> None:
    """Up recalls lines, also of the last run; Tab completes commands; Ctrl-C drops a line"""
    scene.start(GREEDY + " -q")
    scene.order("/system Be brief.")
    scene.order("/stats")
    scene.pane.type("/nothing yet")
    scene.press("C-a", "C-k", until=PROMPT)
    scene.leaves("C-d")
    scene.start(GREEDY + " -q")
    scene.press("Up", until=r"^> /stats$\Z")
    scene.press("Up", until=r"^> /system Be brief\.$\Z")
    scene.press("Down", until=r"^> /stats$\Z")
    scene.press("C-u", until=PROMPT)
    scene.pane.type("/he")
    scene.press("Tab", until=r"^> /help$\Z")
    scene.press("C-u", until=PROMPT)
    scene.pane.type("/s")
    scene.press("Tab", until=r"^/system +/save +/stats$\Z")
    scene.shows("candidates")
    scene.press("Tab", until=r"^> /system\n")
    scene.press("Tab", until=r"^> /save\n")
    scene.press("C-c", until=PROMPT)
    scene.press("C-c", until=r"^Ctrl-C again leaves.*\n>$\Z")
    scene.shows("dropped")
    scene.leaves("C-c")


def every_script(scene: Scene) -> None:
    """letters of every script are typed, crossed and erased, and reach the model as typed"""
    scene.start(GREEDY + " -n 3")
    scene.pane.type("Grüße, 日本語 👍🏽!")
    scene.pane.wait_for(r"日本語 👍🏽!$\Z")
    scene.press("Left", "Left", "BSpace", "BSpace", until=r"日本 ?👍")
    scene.shows("unicode")
    scene.press("Enter", until=ANSWERED)
    assert scene.saved()[0]["content"] == "Grüße, 日本👍🏽!", scene.saved()
    scene.press("Up", "Up", until=r"^> Grüße, 日本👍🏽!$\Z")
    scene.press("C-u", until=PROMPT)
    scene.leaves("C-d")


def is_answering(screen: str) -> bool:
    """True if the last line is neither input nor a note."""
    last = screen.split("\n")[-1]
    return len(last) > 20 and not last.startswith(">") and "tok/s" not in last and "Ctrl-" not in last


def answer_is_stopped(scene: Scene) -> None:
    """Ctrl-C stops a long answer and keeps its text; twice, it leaves"""
    # The slowest kernels, to have time; the answer ends only at the end of the context.
    scene.start(f"{GREEDY} --isa scalar --ignore-eos")
    scene.pane.type("Tell me a story.")
    scene.pane.press("Enter")
    scene.pane.wait("an answer", is_answering)
    screen = scene.press("C-c", until=r" · stopped\n>$\Z")
    last = screen.split("\n")[-2]
    assert re.fullmatch(r"[\d,]+ tokens · [\d.,]+ tok/s · prompt 13 tokens, [\d.,]+ tok/s · stopped", last), last
    messages = scene.saved()
    assert [message["role"] for message in messages] == ["user", "assistant"], messages
    assert messages[1]["content"].startswith("Once upon a time"), messages
    scene.pane.type("More.")
    scene.pane.press("Enter")
    scene.pane.wait("another answer", is_answering)
    scene.press("C-c", until=r" · stopped\n>$\Z")
    scene.leaves("C-c")


def typed_ahead(scene: Scene) -> None:
    """a line entered during an answer is handled after it"""
    scene.start(f"{GREEDY} --isa scalar -n 60")
    scene.pane.type("Tell me a story.")
    scene.pane.press("Enter")
    scene.pane.wait("an answer", is_answering)
    scene.pane.type("/undo")
    scene.press("Enter", until=r" · stopped at the limit of tokens\n> /undo\nthe last question .*\n>$\Z")
    scene.leaves("C-d")


def suspended_and_ended(scene: Scene) -> None:
    """Ctrl-Z returns to the shell and fg to the line; a terminated chat restores the terminal"""
    scene.start(GREEDY + " -q")
    scene.pane.type("half")
    scene.press("C-z", until=rf"^{re.escape(SHELL_PROMPT)}$\Z")
    scene.leaves()
    scene.pane.type("fg")
    scene.press("Enter", until=r"^> half$\Z")
    scene.pane.type(" of it")
    scene.pane.wait_for(r"^> half of it$\Z")
    shell = scene.pane.shell()
    children = pathlib.Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii")
    os.kill(int(children), signal.SIGTERM)
    scene.leaves()


def styles(scene: Scene) -> None:
    """notes are dim and answers are not; with NO_COLOR nothing is"""
    for no_color in (False, True):
        scene.start(GREEDY, ("NO_COLOR=1 " * no_color) + "moeflux chat -m tern")
        scene.say("What is 17 + 25?")
        lines = scene.pane.styled().split("\n")
        dim = [line for line in lines if "\x1b[2m" in line]
        if no_color:
            assert not dim and not any("\x1b" in line for line in lines), lines
        else:
            assert any("moeflux" in line for line in dim) and any("tok/s" in line for line in dim), lines
            assert any(re.sub("\x1b\\[[0-9;]*m", "", line) == "17 + 25 = 42." for line in lines if line not in dim), lines
        scene.leaves("C-d")
        scene.pane.type("clear")
        scene.press("Enter", until=rf"\A{re.escape(SHELL_PROMPT)}$\Z")


def replies_wrap_at_words(scene: Scene) -> None:
    """a reply breaks between words, in chat and in run; saved and redirected text has no breaks"""
    story = "Tell me a story about a dragon and a lighthouse."
    scene.start(GREEDY + " -q")
    scene.say(story, until=r"\.\n>$\Z")
    rows = scene.pane.screen().split("\n")
    rows = rows[rows.index(f"> {story}") + 1:-1]
    assert len(rows) > 3 and all(len(row) <= COLUMNS for row in rows), rows
    reply = scene.saved()[1]["content"]
    assert "\n" not in reply and " ".join(rows) == reply, (rows, reply)
    scene.leaves("C-d")
    question = f"-m tern -q {GREEDY} -p '{story}'"
    scene.pane.type(f"moeflux run {question} > reply.txt; clear; moeflux run {question}")
    scene.pane.press("Enter")
    screen = scene.pane.wait("the reply", lambda screen: screen.endswith(f".\n{SHELL_PROMPT}"))
    assert screen.split("\n")[-1 - len(rows):-1] == rows, screen
    assert (scene.box.folder / "reply.txt").read_text(encoding="utf-8") == reply + "\n"
    scene.leaves()


SCENES: list[Callable[[Scene], None]] = [
    first_minute, pasted_lines, several_lines_typed, conversation_is_edited, saved_and_loaded, unknown_commands,
    keys_and_history, every_script, answer_is_stopped, typed_ahead,
    suspended_and_ended, styles, replies_wrap_at_words]


def play(act: Callable[[Scene], None], box: Sandbox, records: bool) -> None:
    shutil.rmtree(box.folder / "state")
    (box.folder / "state").mkdir()
    path = {"PATH": f"{box.folder / 'bin'}:{box.environment['PATH']}"}
    with Pane(box.environment | path, box.folder) as pane:
        pane.type("stty -g > before; clear")
        pane.press("Enter")
        pane.wait("the shell's prompt", lambda screen: screen == SHELL_PROMPT and (box.folder / "before").exists())
        act(Scene(box, pane, records))
    (box.folder / "before").unlink()


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--record"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mf-chat-") as name:  # a short path: it contains tmux's socket
        box = Sandbox(arguments[0], pathlib.Path(name))
        (box.folder / "bin").mkdir()
        (box.folder / "bin" / "moeflux").symlink_to(box.program)
        box.pack(TERN)
        records = "--record" in sys.argv
        return 1 if run_checks((act.__doc__ or "", functools.partial(play, act, box, records)) for act in SCENES) else 0


if __name__ == "__main__":
    sys.exit(main())
