#!/usr/bin/env python3
"""bench/memcap.sh limits memory, passes exit codes on, reports what happened and leaves nothing behind.

Exits with 77, which ctest reports as skipped, if control groups cannot be created on this machine. Tests that
need none run there too, on control groups made of files.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench" / "memcap.sh"
PATIENCE_S = 60
MIB = 2**20
NOBODY = 65534
TELLS = re.compile(r"^memcap: limit=(\d+) peak=(\w+) limit_hits=(\w+) major_faults=(\w+) oom_kills=(\w+) "
                   r"rc=(\d+)$", re.M)


def run(command, **options):
    """A command's exit code, stdout and stderr."""
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                           **options)
    return child.returncode, child.stdout, child.stderr


def memcap(*arguments, **options):
    return run([SCRIPT, *map(str, arguments)], **options)


def python(code):
    return [sys.executable, "-c", code]


def why_not():
    """Why this machine cannot limit memory; empty: it can."""
    code, _, err = memcap("64M", "-", "true")
    return err.strip() if code == 77 else ""


class Arguments(unittest.TestCase):
    def expect_refusal(self, arguments, message):
        code, out, err = memcap(*arguments)
        self.assertEqual((code, out, err), (125, "", f"memcap: {message}\n"))

    def test_are_checked_before_anything_is_done(self):
        usage = "expected BYTES[K|M|G] EVICT_PATH COMMAND [ARGUMENT...], found"
        self.expect_refusal([], f"{usage} 0 arguments")
        self.expect_refusal(["64M", "-"], f"{usage} 2 arguments")
        for limit in ["", "0", "-1", "64X", "64MB", "1.5G", "064M", " 64M", "9" * 40]:
            self.expect_refusal([limit, "-", "true"], f"expected BYTES[K|M|G], found '{limit}'")
        self.expect_refusal(["999999999999999G", "-", "true"],
                            f"expected at most {2**62} bytes, found '999999999999999G'")
        self.expect_refusal(["64M", ROOT / "nowhere", "true"],
                            f"expected a file or directory to evict, found nothing at '{ROOT / 'nowhere'}'")


class MadeUpGroups(unittest.TestCase):
    """Control groups made of files: which files are written, and where. They are left to look at."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def run_in(self, *arguments):
        return memcap(*arguments, env={**os.environ, "MEMCAP_ROOT": str(self.root)})

    def group(self):
        found = list(self.root.rglob("memcap.*"))
        self.assertEqual(len(found), 1, found)
        return found[0]

    def expect_skip(self, why):
        code, out, err = self.run_in("64M", "-", "true")
        self.assertEqual((code, out, err), (77, "", f"memcap: cannot limit memory here: {why}\n"))

    def test_version_2_is_limited(self):
        self.write({
            "proc/self/cgroup": "0::/user/session\n",
            "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            "sys/fs/cgroup/user/session/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/user/session/cgroup.subtree_control": "memory\n",
        })
        code, out, err = self.run_in("64M", "-", "sh", "-c", "echo $$; exit 3")
        self.assertEqual(code, 3)
        group = self.group()
        self.assertEqual(group.parent, self.root / "sys/fs/cgroup/user/session")
        self.assertEqual((group / "memory.max").read_text(), f"{64 * MIB}\n")
        self.assertEqual((group / "cgroup.procs").read_text(), out)
        self.assertIn(f"memcap: limit={64 * MIB} peak=unknown limit_hits=unknown major_faults=unknown "
                      "oom_kills=unknown rc=3\n", err)

    def test_version_2_tells_what_the_kernel_tells(self):
        self.write({
            "proc/self/cgroup": "0::/\n",
            "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            "sys/fs/cgroup/cgroup.subtree_control": "cpu memory io\n",
        })
        fill = (f"cd {self.root}/sys/fs/cgroup/memcap.*; echo 5000 >memory.peak\n"
                "printf 'low 1\\nhigh 2\\nmax 3\\noom 4\\noom_kill 5\\n' >memory.events\n"
                "printf 'pgfault 6\\npgmajfault 7\\n' >memory.stat")
        _, _, err = self.run_in("1G", "-", "sh", "-c", fill)
        self.assertIn(f"memcap: limit={2**30} peak=5000 limit_hits=3 major_faults=7 oom_kills=5 rc=0\n", err)

    def test_version_2_looks_further_out_for_a_group_that_may_limit(self):
        # The own group has processes, so it cannot give memory to its children; the one around it does.
        self.write({
            "proc/self/cgroup": "0::/user/session\n",
            "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            "sys/fs/cgroup/user/session/cgroup.controllers": "cpu\n",
            "sys/fs/cgroup/user/session/cgroup.subtree_control": "cpu\n",
            "sys/fs/cgroup/user/cgroup.subtree_control": "cpu memory\n",
        })
        code, _, _ = self.run_in("64M", "-", "true")
        self.assertEqual(code, 0)
        self.assertEqual(self.group().parent, self.root / "sys/fs/cgroup/user")

    def test_version_2_hands_memory_down_where_it_may(self):
        self.write({
            "proc/self/cgroup": "0::/a\n",
            "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            "sys/fs/cgroup/a/cgroup.controllers": "memory\n",
            "sys/fs/cgroup/a/cgroup.subtree_control": "\n",
        })
        code, _, _ = self.run_in("64M", "-", "true")
        self.assertEqual(code, 0)
        self.assertEqual((self.root / "sys/fs/cgroup/a/cgroup.subtree_control").read_text(), "+memory\n")

    def test_version_1_is_preferred_where_it_has_the_memory(self):
        self.write({
            "proc/self/cgroup": "4:cpu,memory:/box\n0::/\n",
            "proc/self/mounts": "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
                                "cgroup /sys/fs/cgroup/memory cgroup rw,cpu,memory 0 0\n"
                                "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
            "sys/fs/cgroup/memory/box/tasks": "",
        })
        code, _, _ = self.run_in("4096K", "-", "true")
        self.assertEqual(code, 0)
        self.assertEqual(self.group().parent, self.root / "sys/fs/cgroup/memory/box")
        self.assertEqual((self.group() / "memory.limit_in_bytes").read_text(), f"{4 * MIB}\n")

    def test_names_of_the_host_lead_to_the_mount_point(self):
        self.write({
            "proc/self/cgroup": "4:memory:/docker/0123\n",
            "proc/self/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
            "sys/fs/cgroup/memory/tasks": "",
        })
        code, _, _ = self.run_in("64M", "-", "true")
        self.assertEqual(code, 0)
        self.assertEqual(self.group().parent, self.root / "sys/fs/cgroup/memory")

    def test_a_system_without_them_is_skipped_for_a_reason(self):
        self.expect_skip("the system has no control groups")
        self.write({"proc/self/cgroup": "0::/\n", "proc/self/mounts": "tmpfs / tmpfs rw 0 0\n"})
        self.expect_skip("no control groups are mounted")
        self.write({"proc/self/cgroup": "4:memory:/\n0::/\n"})
        self.expect_skip("the memory controller is not mounted")
        self.write({"proc/self/cgroup": "0::/a/b\n",
                    "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
                    "sys/fs/cgroup/a/b/cgroup.controllers": "cpu\n"})
        self.expect_skip("no group around this process may limit the memory of its children")


@unittest.skipIf(why_not(), why_not())
class Memcap(unittest.TestCase):
    def expect(self, *arguments, rc):
        """Standard output, and the reported numbers: limit, peak, limit_hits, major_faults, oom_kills."""
        code, out, err = memcap(*arguments)
        self.assertEqual(code, rc, err)
        tells = TELLS.search(err)
        self.assertTrue(tells, err)
        self.assertEqual(int(tells[6]), rc)
        return out, [int(text) if text.isdigit() else None for text in tells.groups()[:5]]

    def test_passes_exit_codes_and_output_on(self):
        for rc in [0, 1, 5, 77, 255]:
            out, numbers = self.expect("256M", "-", "sh", "-c", f"echo said; exit {rc}", rc=rc)
            self.assertEqual(out, "said\n")
            self.assertEqual(numbers[0], 256 * MIB)
            self.assertIn(numbers[4], [0, None])
        self.expect("256M", "-", "no-such-command", rc=127)
        self.expect("256M", "-", "sh", "-c", "kill -SEGV $$", rc=128 + signal.SIGSEGV)

    def test_passes_input_and_arguments_on_as_they_are(self):
        echo = ["sh", "-c", 'printf "%s|" "$@"; cat', "sh"]
        code, out, err = memcap("256M", "-", *echo, "a b", "", "*", input="in\n")
        self.assertEqual((code, out), (0, "a b||*|in\n"), err)

    def test_kills_what_takes_more_memory(self):
        _, numbers = self.expect("64M", "-", *python(f"b = bytearray({256 * MIB}); print(len(b))"), rc=137)
        limit, peak, hits, _, kills = numbers
        if hits is not None:
            self.assertGreaterEqual(hits, 1)
        if peak is not None:
            self.assertLessEqual(peak, limit)
            self.assertGreater(peak, limit // 2)
        if kills is not None:
            self.assertGreaterEqual(kills, 1)

    def test_lets_nothing_swap(self):
        # The command looks at its own group: its name is the last of the line, whatever the version.
        look = ("import pathlib\n"
                "for line in open('/proc/self/cgroup'):\n"
                "  if 'memcap.' in line:\n"
                "    name = line.strip().rpartition('/')[2]\n"
                "    for group in pathlib.Path('/sys/fs/cgroup').rglob(name):\n"
                "      for file in ['memory.swappiness', 'memory.swap.max']:\n"
                "        if (group / file).exists(): print(file, (group / file).read_text().strip())\n")
        out, _ = self.expect("256M", "-", *python(look), rc=0)
        self.assertIn(out, ["memory.swappiness 0\n", "memory.swap.max 0\n", ""])

    def test_lets_what_takes_less_run(self):
        out, numbers = self.expect("256M", "-", *python(f"b = bytearray({64 * MIB}); print(len(b))"), rc=0)
        self.assertEqual(out, f"{64 * MIB}\n")
        if numbers[1] is not None:
            self.assertGreater(numbers[1], 64 * MIB)

    def test_counts_the_page_cache_of_what_was_evicted(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["a", "b c/d"]:
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(os.urandom(24 * MIB))
            read = f"find '{folder}' -type f -exec cat {{}} + | wc -c"
            out, numbers = self.expect("1G", folder, "sh", "-c", read, rc=0)
            self.assertEqual(out, f"{48 * MIB}\n")
            if numbers[1] is not None and not in_memory(folder):
                self.assertGreater(numbers[1], 48 * MIB)

    def test_leaves_no_group_and_no_process_behind(self):
        start = [SCRIPT, "64M", "-", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"]
        with subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            out, err = child.communicate(timeout=PATIENCE_S)
            self.assertEqual(child.returncode, 0, err)
        self.assertFalse(is_alive(int(out)), "the sleeper")
        self.assertEqual(groups_of(child.pid), [])

    def test_passes_signals_on(self):
        wait = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
        start = [SCRIPT, "64M", "-", "sh", "-c", wait]
        with subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            self.assertEqual(child.stdout.readline(), "ready\n")
            child.send_signal(signal.SIGTERM)
            _, err = child.communicate(timeout=PATIENCE_S)
            self.assertEqual(child.returncode, 9, err)
        self.assertEqual(groups_of(child.pid), [])

    @unittest.skipIf(os.geteuid() != 0, "only root can become somebody who may not write control groups")
    def test_says_so_in_one_line_where_groups_cannot_be_written(self):
        # Read from standard input, because that user may be unable to read this folder.
        command = ["bash", "-s", "--", "64M", "-", "true"]
        code, out, err = run(command, input=SCRIPT.read_text(encoding="utf-8"), cwd="/",
                             user=NOBODY, group=NOBODY, extra_groups=[])
        self.assertEqual((code, out), (77, ""))
        self.assertRegex(err, r"\Amemcap: cannot limit memory here: [^\n]+\n\Z")


def in_memory(folder):
    """Whether the files of a folder are on no disk, so that reading them fills no page cache."""
    _, kind, _ = run(["stat", "--file-system", "--format=%T", folder])
    return kind.strip() in {"tmpfs", "ramfs"}


def is_alive(process):
    for _ in range(100):  # what was killed goes a little later
        try:
            os.kill(process, 0)
            stat = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        except OSError:
            return False
        if stat.rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.05)
    return True


def groups_of(process):
    """Control groups that remain of the script with this process id."""
    return [os.path.join(folder, name) for folder, folders, _ in os.walk("/sys/fs/cgroup") for name in folders
            if name == f"memcap.{process}"]


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if why_not() else 0)
