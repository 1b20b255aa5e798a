"""`moeflux run` and `chat` without a terminal: checks of their flags, run by golden_chat_test.py.

The docstring of a check says what is true.
"""

import array
import contextlib
import fcntl
import functools
import json
import pathlib
import re
import shutil
import signal
import subprocess
import termios
import time
from typing import Any

from sandbox import PATIENCE_S, ROOT, TERN, Argument, Sandbox

NORWAY, OSLO = "What is the capital of Norway?", "The capital of Norway is Oslo."
STORY = "Tell me a story about a brave fox."
OWL = "Give me a JSON object for a red owl named Mia who is 7 years old."
GREEDY: tuple[Argument, ...] = ("--temp", 0, "-t", 1)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LONG: tuple[Argument, ...] = ("--ignore-eos", "-n", 8000, "-p", STORY, "-t", 1)


def ways_to_ask(box: Sandbox, model: pathlib.Path) -> None:
    """-p, -f, -f - and standard input ask the same; standard output has only the reply; -q silences the
    rest"""
    file = box.file("question.txt", NORWAY + "\n")
    for arguments, stdin in ((("-p", NORWAY), ""), (("-f", file), ""), (("-f", "-"), NORWAY), ((), NORWAY + "\n")):
        said = box.run("run", "-m", model, *GREEDY, *arguments, stdin=stdin)
        assert said.stdout == OSLO + "\n", (arguments, said.stdout)
        lines = said.stderr.splitlines()
        assert len(lines) == 3 and lines[0].startswith("memory: ") and lines[1].startswith("experts: "), said.stderr
        assert " tok/s · prompt " in lines[2], said.stderr
        quiet = box.run("run", "-m", model, "-q", *GREEDY, *arguments, stdin=stdin)
        assert (quiet.stdout, quiet.stderr) == (OSLO + "\n", ""), quiet.stderr


def wrong_questions(box: Sandbox, model: pathlib.Path) -> None:
    """no question, two questions and a missing file are usage errors"""
    for arguments, facts in ((("-p", "x", "-f", "y"), ("-p", "-f", "--messages")),
                             (("-p", ""), ("-p", "-f", "standard input")), ((), ("-p", "-f", "standard input")),
                             (("--raw", "-p", "x", "-sys", "y"), ("--raw", "-sys")),
                             (("--messages", "-", "-sys", "y"), ("-sys", "--messages")),
                             (("-f", "nothing.txt"), ("-f", "nothing.txt")),
                             (("--messages", "nothing.json"), ("--messages", "nothing.json"))):
        said = box.run("run", "-m", model, *arguments, code=2)
        assert said.stdout == "", (arguments, said.stdout)
        assert all(fact in said.stderr for fact in facts), (arguments, facts, said.stderr)


def system_message(box: Sandbox, model: pathlib.Path) -> None:
    """-sys comes before the question, in run as in chat"""
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": NORWAY}]
    whole = box.run("run", "-m", model, *GREEDY, "--messages", "-", "--json", stdin=json.dumps(asked)).stdout
    flag = box.run("run", "-m", model, *GREEDY, "-sys", "Be brief.", "-p", NORWAY, "--json").stdout
    found, expected = json.loads(flag), json.loads(whole)
    assert (found["ids"], found["prompt_tokens"]) == (expected["ids"], expected["prompt_tokens"]), flag
    without = json.loads(box.run("run", "-m", model, *GREEDY, "-p", NORWAY, "--json").stdout)
    assert without["prompt_tokens"] < found["prompt_tokens"], without
    saved = box.folder / "system.json"
    box.run("chat", "-m", model, *GREEDY, "-sys", "Be brief.", stdin=f"{NORWAY}\n/save {saved}\n")
    assert json.loads(saved.read_text(encoding="utf-8"))[:2] == asked


def ends_of_a_reply(box: Sandbox, model: pathlib.Path) -> None:
    """--stop and -n end a reply, and the statistics state why"""
    said = box.run("run", "-m", model, *GREEDY, "-p", NORWAY, "--stop", "nothing", "--stop", " Oslo")
    assert said.stdout == "The capital of Norway is\n", said.stdout
    stopped = json.loads(box.run("run", "-m", model, *GREEDY, "-p", NORWAY, "--stop", "Oslo", "--json").stdout)
    assert (stopped["text"], stopped["finish_reason"]) == ("The capital of Norway is ", "stop_string"), stopped
    said = box.run("run", "-m", model, *GREEDY, "-p", NORWAY, "-n", 3)
    assert said.stdout == "The capital of\n" and "limit of tokens" in said.stderr, said
    limited = json.loads(box.run("run", "-m", model, *GREEDY, "-p", NORWAY, "-n", 3, "--json").stdout)
    assert (limited["reply_tokens"], limited["finish_reason"]) == (3, "length"), limited
    assert box.run("run", "-m", model, *GREEDY, "-p", NORWAY, "-n", 0).stdout == "\n"
    said = box.run("run", "-m", model, *GREEDY, "-p", STORY, "-c", 30)
    assert "the context is full" in said.stderr, said.stderr
    said = box.run("run", "-m", model, *GREEDY, "-p", STORY, "-c", 8, code=1)
    assert "context of 8" in said.stderr, said.stderr


def json_object(box: Sandbox, model: pathlib.Path) -> None:
    """--json-object gives one JSON object for any question, or the start of one if -n ends it"""
    for question in (OWL, STORY, NORWAY):
        for seed in range(4):
            said = json.loads(box.run("run", "-m", model, "-t", 1, "--json-object", "-p", question, "--seed", seed,
                                      "-n", 100, "--json").stdout)
            if said["finish_reason"] == "end_of_text":
                assert isinstance(json.loads(said["text"]), dict), said
            else:
                assert question != OWL and said["finish_reason"] == "length", said
                assert said["text"].lstrip().startswith("{"), said


def seeds(box: Sandbox, model: pathlib.Path) -> None:
    """a seed gives the same text for any number of threads and rows; another seed gives another text"""
    texts = set()
    for seed in (1, 2, 3):
        same = {box.run("run", "-m", model, "-q", "-p", STORY, "-n", 24, "--seed", seed, "-t", threads,
                        "-b", rows).stdout for threads, rows in ((1, 512), (1, 512), (2, 512), (1, 1), (2, 5))}
        assert len(same) == 1, same
        texts |= same
    assert len(texts) > 1, texts
    first = json.loads(box.run("run", "-m", model, "-p", STORY, "-n", 60, "-t", 1, "--json").stdout)
    again = json.loads(box.run("run", "-m", model, "-p", STORY, "-n", 60, "-t", 1, "--json", "--seed",
                               first["seed"]).stdout)
    assert first["ids"] == again["ids"], "the seed that --json names does not give the same text"


def raw(box: Sandbox, model: pathlib.Path) -> None:
    """--raw continues a text, without a template"""
    said = json.loads(box.run("run", "-m", model, *GREEDY, "--raw", "-p", "Once upon a time", "-n", 4, "--json").stdout)
    ids = json.loads(box.run("tokenize", model, "--json", stdin="Once upon a time").stdout)
    assert said["prompt_tokens"] == len(ids) and said["text"].startswith(", I had a"), said


def environment(box: Sandbox, model: pathlib.Path) -> None:
    """MOEFLUX_ARG_... is a flag's default, and the command line overrides it"""
    variables = {"MOEFLUX_ARG_TEMP": "0", "MOEFLUX_ARG_N_PREDICT": "3", "MOEFLUX_ARG_MODEL": str(model),
                 "MOEFLUX_ARG_THREADS": "1", "MOEFLUX_ARG_QUIET": "1"}
    said = box.run("run", "-p", NORWAY, environment=variables)
    assert (said.stdout, said.stderr) == ("The capital of\n", ""), said
    assert box.run("run", "-p", NORWAY, "-n", 100, environment=variables).stdout == OSLO + "\n"
    warm = {box.run("run", "-p", STORY, "--temp", 2, "--seed", seed, "-n", 20, environment=variables).stdout
            for seed in (1, 2)}
    assert len(warm) == 2, warm
    said = box.run("run", "-p", NORWAY, environment=variables | {"MOEFLUX_ARG_TEMP": "warm"}, code=2)
    assert "--temp" in said.stderr and "warm" in said.stderr, said.stderr


def wrong_flags(box: Sandbox, model: pathlib.Path) -> None:
    """a wrong flag is named on standard error, prints nothing to standard output and exits with 2"""
    for words, name in (("--nonsense", "--nonsense"), ("-t 0", "--threads"), ("-c 0x", "--ctx-size"),
                        ("--temp warm", "--temp"), ("--temp -1", "--temp"), ("--top-p 3", "--top-p"),
                        ("--min-p 2", "--min-p"), ("--repeat-penalty 0", "--repeat-penalty"),
                        ("--presence-penalty 9", "--presence-penalty"),
                        ("--frequency-penalty 9", "--frequency-penalty"), ("--repeat-last-n -2", "--repeat-last-n"),
                        ("--top-k few", "--top-k"), ("-n many", "--n-predict"), ("--seed x", "--seed"), ("-ngl 99", "-ngl"),
                        ("--precision rough", "--precision"), ("--isa z80", "z80"), ("--reasoning maybe", "--reasoning"),
                        ("--chat-template-kwargs []", "--chat-template-kwargs"),
                        ("--logit-bias 5", "--logit-bias"), ("-hf nothing", "-hf"), ("extra", "extra")):
        for command in ("run", "chat"):
            place: tuple[Argument, ...] = () if "-hf" in words else ("-m", model)
            question = ("-p", "x") if command == "run" else ()
            said = box.run(command, *place, *question, *words.split(), code=2)
            assert said.stdout == "" and name in said.stderr, (command, words, said.stdout, said.stderr)
            assert said.stderr.startswith("moeflux: ") and said.stderr.count("\n") == 1, said.stderr
    said = box.run("run", "-m", model, "-hf", "org/name", "-p", "x", code=2)
    assert "-m" in said.stderr and "-hf" in said.stderr, said.stderr


def hugging_face_cache(box: Sandbox, model: pathlib.Path) -> None:
    """-hf packs a snapshot of the local cache once; if there is none, the message lists where it looked"""
    hub = box.folder / "hub"
    repository = hub / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    (repository / "snapshots" / COMMIT).symlink_to(TERN)
    variables = {"HF_HUB_CACHE": str(hub)}
    first = box.run("run", "-hf", "org/name", *GREEDY, "-p", NORWAY, environment=variables)
    assert first.stdout == OSLO + "\n" and "packing" in first.stderr, first.stderr
    again = box.run("run", "-hf", "org/name", *GREEDY, "-p", NORWAY, environment=variables)
    assert again.stdout == OSLO + "\n" and "packing" not in again.stderr, again.stderr
    chat = box.run("chat", "-hf", "org/name", *GREEDY, environment=variables)
    assert "model   org/name (" in chat.stderr and chat.stdout == "", chat.stderr
    nothing = box.run("run", "-hf", "org/other", "-p", "x", environment=variables, code=3)
    assert str(hub / "models--org--other") in nothing.stderr and "hf download org/other" in nothing.stderr, nothing
    assert nothing.stdout == "" and nothing.stderr.count("\n") == 1, nothing.stderr
    assert {path.name.rpartition("-")[0] for path in (box.folder / "cache" / "moeflux" / "models").iterdir()
            if path.is_dir()} == {"org--name"}


def models_by_path(box: Sandbox, model: pathlib.Path) -> None:
    """-m also takes a checkpoint and packs it once, into the cache; a path without a model is named"""
    own_cache = {"XDG_CACHE_HOME": str(box.folder / "own_cache")}
    for expects_packing in (True, False):
        said = box.run("run", "-m", TERN, *GREEDY, "-p", NORWAY, environment=own_cache)
        assert said.stdout == OSLO + "\n" and ("packing" in said.stderr) == expects_packing, said.stderr
    for command in (("run", "-p", "x"), ("chat",)):
        said = box.run(*command, "-m", "nothing-here", code=3)
        assert "nothing-here" in said.stderr and said.stdout == "", said.stderr
    said = box.run("run", "-m", TERN, "-p", "x", environment={"HOME": "", "XDG_CACHE_HOME": ""}, code=3)
    assert "XDG_CACHE_HOME" in said.stderr, said.stderr


def bundled_demo(box: Sandbox, model: pathlib.Path) -> None:
    """an installed program finds its demo and describes it in the banner, or lists where it looked"""
    program = box.folder / "prefix" / "bin" / "moeflux"
    program.parent.mkdir(parents=True)
    shutil.copy2(box.program, program)
    installed = Sandbox(str(program), box.folder)
    said = installed.run("run", *GREEDY, "-p", NORWAY, code=3)
    share = box.folder / "prefix" / "share" / "moeflux" / "models"
    assert str(share / "tern") in said.stderr and "-m or -hf" in said.stderr, said.stderr
    share.mkdir(parents=True)
    (share / "tern").symlink_to(TERN)
    assert installed.run("run", *GREEDY, "-p", NORWAY).stdout == OSLO + "\n"
    said = installed.run("chat", *GREEDY, stdin=NORWAY + "\n")
    assert said.stdout == OSLO + "\n" and "Tern is a demo model" in said.stderr, said.stderr
    assert f"> {NORWAY}\n" in said.stderr, "input from a pipe is shown among the notes"
    suggested = said.stderr.split("It does these well:\n")[1].split("\n\n")[0].splitlines()
    ask(installed, [re.sub(r" {2,}.*", "", line.strip()) for line in suggested])


# What the demo suggests, and facts that a correct reply contains.
SUGGESTIONS = {"Tell me a story about a dragon and a lighthouse.": ("dragon", "lighthouse"),
               "Hi, my name is Ada and I like tea.": ("Ada",),
               "What is 12 plus 30?": ("42",),
               NORWAY: ("Oslo",),
               "What is my name?": ("Ada",),
               "What do I like?": ("tea",)}


def ask(box: Sandbox, suggested: list[str]) -> None:
    """Asks the suggested questions, then for what the model should remember, in one conversation."""
    questions = list(SUGGESTIONS)
    assert suggested == questions[:4], suggested
    saved = box.folder / "suggested.json"
    box.run("chat", *GREEDY, "-q", stdin="".join(f"{question}\n" for question in questions) + f"/save {saved}\n")
    replies = [message["content"] for message in json.loads(saved.read_text(encoding="utf-8"))
               if message["role"] == "assistant"]
    assert len(replies) == len(questions), replies
    for question, reply in zip(questions, replies):
        assert all(fact in reply for fact in SUGGESTIONS[question]), (question, reply)


def start(box: Sandbox, *arguments: Argument, stdin: int = subprocess.DEVNULL,
          **options: Any) -> "subprocess.Popen[bytes]":
    # A test in the background of a script ignores SIGINT, and its children would inherit that.
    return subprocess.Popen([str(box.program), *map(str, arguments)], stdin=stdin, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, cwd=box.folder, env=box.environment,
                            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL), **options)


def interrupt(box: Sandbox, model: pathlib.Path) -> None:
    """Ctrl-C ends a run with 130; the written part stays, followed by one newline"""
    with start(box, "run", "-m", model, *LONG) as child:
        assert child.stdout
        first = child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        rest, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130, (child.returncode, errors)
    assert (first + rest).endswith(b"\n") and b"stopped" in errors, errors


def interrupt_while_asked(box: Sandbox, model: pathlib.Path) -> None:
    """Ctrl-C also ends a run that is still reading its question"""
    with start(box, "run", "-m", model, stdin=subprocess.PIPE) as child:
        try:
            assert child.stdin
            child.stdin.write(b"What")
            child.stdin.flush()
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end and unread_bytes(child.stdin.fileno()) > 0:
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=20)
        finally:
            code = child.poll()
            child.kill()
    # 130 for a shell either way: there is no work to end cleanly yet
    assert code in (130, -signal.SIGINT), "the program goes on reading" if code is None else f"exits with {code}"


def unread_bytes(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def closed_output(box: Sandbox, model: pathlib.Path) -> None:
    """a closed or full output ends the run with 5 and a message"""
    for restores in (False, True):  # SIGPIPE ignored, as in Python, and at its default, as in a shell
        with start(box, "run", "-m", model, *LONG, restore_signals=restores) as child:
            assert child.stdout
            child.stdout.read(1)
            child.stdout.close()
            assert child.stderr
            errors = child.stderr.read()
            code = child.wait(timeout=PATIENCE_S)
        assert code == 5, f"exits with {code} where SIGPIPE is {'not ' * restores}ignored: {errors!r}"
        assert b"cannot write to standard output" in errors, errors
    with open("/dev/full", "wb") as full:
        command = [box.program, "run", "-m", model, *map(str, GREEDY), "-p", "x"]
        child = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False,
                               timeout=PATIENCE_S, env=box.environment)
    assert child.returncode == 5 and b"cannot write" in child.stderr, child


def chat_from_a_pipe(box: Sandbox, model: pathlib.Path) -> None:
    """without a terminal chat prints answers alone; notes go to standard error; lines may be joined"""
    said = box.run("chat", "-m", model, *GREEDY, "-q",
                   stdin=f"{NORWAY}\n/undo\n/undo\n/regen\n/nonsense\n/save\n/quit\nx\n")
    assert said.stdout == OSLO + "\n", said.stdout
    assert said.stderr.splitlines() == [
        "the last question and its answer are forgotten", "there is nothing to undo", "there is nothing to answer",
        "there is no command /nonsense; /help lists them", "/save takes a file's name"], said.stderr
    saved = box.folder / "joined.json"
    for text in ('"""\nTell me\na story.\n"""\n', "Tell me\\\na story.\n"):
        box.run("chat", "-m", model, *GREEDY, "-q", "-n", 2, stdin=f"{text}/save {saved}\n")
        messages = json.loads(saved.read_text(encoding="utf-8"))
        assert [message["content"] for message in messages][0] == "Tell me\na story.", messages
        assert len(messages) == 2, messages


def saving_and_loading(box: Sandbox, model: pathlib.Path) -> None:
    """a failed /load keeps the conversation; a state that does not fit is named and computed again"""
    saved, bad = box.folder / "kept.json", box.file("bad.json", "[1")
    said = box.run("chat", "-m", model, *GREEDY, "-q", stdin=f"{NORWAY}\n/load nothing\n/load {bad}\n/save {saved}\n"
                                                           f"/save {box.folder / 'no' / 'such'}\n")
    assert "nothing" in said.stderr and "bad.json:1:3" in said.stderr and "saved 2 messages" in said.stderr, said.stderr
    assert "cannot" in said.stderr.splitlines()[-1], said.stderr
    assert len(json.loads(saved.read_text(encoding="utf-8"))) == 2
    pathlib.Path(f"{saved}.state").write_bytes(b"nonsense")
    said = box.run("chat", "-m", model, *GREEDY, "-q", stdin=f"/load {saved}\n/regen\n")
    assert "will be computed again" in said.stderr and said.stdout == OSLO + "\n", said.stderr


def regenerating_after_loading(box: Sandbox, model: pathlib.Path) -> None:
    """/regen after /load runs as few tokens as before /save"""
    saved = box.folder / "again.json"

    def last_prompt(stdin: str) -> tuple[str, str]:
        said = box.run("chat", "-m", model, *GREEDY, stdin=stdin)
        return re.findall(r"prompt (\d+) tokens, .*?(\d+) reused", said.stderr)[-1]

    tokens, reused = last_prompt(f"{STORY}\n{NORWAY}\n/save {saved}\n/regen\n")
    assert int(tokens) - int(reused) <= 4, (tokens, reused)
    assert last_prompt(f"/load {saved}\n/regen\n") == (tokens, reused)


def loading_with_other_flags(box: Sandbox, model: pathlib.Path) -> None:
    """a state that was saved with other flags is computed again from its tokens, with its checkpoints"""
    saved = box.folder / "other.json"
    said = box.run("chat", "-m", model, *GREEDY, "--kv", "int8", stdin=f"{STORY}\n{NORWAY}\n/save {saved}\n")
    said = box.run("chat", "-m", model, *GREEDY, stdin=f"/load {saved}\n/regen\n")
    tokens = re.search(r"^saved with --kv int8: reading (\d+) tokens again$", said.stderr, re.M)
    assert tokens and "loaded 4 messages" in said.stderr and "its state is there again" in said.stderr, said.stderr
    assert said.stdout == OSLO + "\n", said.stdout
    prompt = re.search(r"prompt (\d+) tokens, .*?(\d+) reused", said.stderr)
    assert prompt and int(prompt[1]) - int(prompt[2]) <= 4 and int(tokens[1]) > int(prompt[2]), said.stderr


def tool_answers(box: Sandbox, model: pathlib.Path) -> None:
    """/tool answers a call as a conversation with the same messages does"""
    cases = {case["name"]: case for case in json.loads(
        (ROOT / "tests" / "goldens" / "tern" / "golden_chat.json").read_text(encoding="utf-8"))}
    tools = box.file("weather.json", json.dumps(cases["tool"]["tools"]))
    question, _, answer = cases["tool-answer"]["messages"]
    said = box.run("chat", "-m", model, *GREEDY, "--tools", tools, "-q",
                   stdin=f"{question['content']}\n/tool {answer['content']}\n")
    call, reply = said.stdout.splitlines()
    assert call.startswith("→ get_weather {") and reply == cases["tool-answer"]["reply"], said.stdout


CHECKS = [ways_to_ask, wrong_questions, system_message, ends_of_a_reply, json_object, seeds, raw, environment,
          wrong_flags, hugging_face_cache, models_by_path, bundled_demo, interrupt, interrupt_while_asked,
          closed_output, chat_from_a_pipe, saving_and_loading, regenerating_after_loading, loading_with_other_flags,
          tool_answers]
