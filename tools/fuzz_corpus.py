#!/usr/bin/env python3
"""Packs and unpacks the seeds of a fuzz target: one archive per target, tests/fuzz/corpus/NAME.tar.xz.

  tools/fuzz_corpus.py unpack NAME FOLDER    writes the seeds of NAME into FOLDER, which is created if needed
  tools/fuzz_corpus.py pack NAME FOLDER      replaces the archive of NAME with the files of FOLDER
  tools/fuzz_corpus.py replay PROGRAM FOLDER unpacks the seeds of PROGRAM (NAME_fuzz) and runs it once on each

The same seeds always give the same archive: members are sorted by name, without dates, owners or permissions.
A target without an archive has no seeds, which is not an error.
"""

import argparse
import io
import pathlib
import shutil
import subprocess
import sys
import tarfile

ARCHIVES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus"


def archive_of(name, archives=ARCHIVES):
    return archives / f"{name}.tar.xz"


def read(archive):
    """The seeds of an archive as {name: bytes}; raises ValueError for a member that is not a plain file."""
    seeds = {}
    with tarfile.open(archive, "r:xz") as tar:
        for member in tar:
            if not member.isreg() or "/" in member.name or member.name in {"", ".", ".."}:
                raise ValueError(f"{archive}: member '{member.name}' is not a plain file without a folder")
            seeds[member.name] = tar.extractfile(member).read()
    return seeds


def write(archive, seeds):
    """Writes {name: bytes} as an archive that depends on nothing else."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=tarfile.USTAR_FORMAT, preset=9) as tar:
        for name in sorted(seeds):
            member = tarfile.TarInfo(name)  # date 0, owner 0, permissions 0644
            member.size = len(seeds[name])
            tar.addfile(member, io.BytesIO(seeds[name]))
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(packed.getvalue())


def unpack(name, folder, archives=ARCHIVES):
    folder.mkdir(parents=True, exist_ok=True)
    if archive_of(name, archives).exists():
        for seed, data in read(archive_of(name, archives)).items():
            (folder / seed).write_bytes(data)


def pack(name, folder, archives=ARCHIVES):
    write(archive_of(name, archives), {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})


def replay(program, folder):
    """Runs a fuzz target on each of its seeds; returns the exit status of the program."""
    name = program.name.removesuffix("_fuzz")
    shutil.rmtree(folder / name, ignore_errors=True)
    unpack(name, folder / name)
    return subprocess.run([program, "-runs=0", "-rss_limit_mb=512", "-timeout=5", folder / name], check=False).returncode


def main():
    parser = argparse.ArgumentParser(description="Packs and unpacks the seeds of a fuzz target.")
    parser.add_argument("command", choices=["unpack", "pack", "replay"])
    parser.add_argument("target", help="name of a fuzz target; for replay the path of its program")
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "replay":
        return replay(pathlib.Path(arguments.target), arguments.folder)
    {"unpack": unpack, "pack": pack}[arguments.command](arguments.target, arguments.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
