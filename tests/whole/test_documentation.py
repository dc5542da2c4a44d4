"""The documents are true: what they show is done with a real ring, and their links lead somewhere.

A fenced block is run unless a comment right before it says why not: `<!-- not run: the reason -->`.
Plain blocks are shells: lines that begin with `$ ` are run; the lines below are what they print.
A block of text is what the program above it prints.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import meteor
from squid import Space
from tests.whole.rings_up import (
    PATIENCE_SECONDS,
    Process,
    free_ports,
    plain_environment,
    process,
    ring_up,
)

ROOT = Path(__file__).parent.parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS]
DOCUMENTS += sorted((ROOT / "deployments").glob("*/*.md"))

PEERS = 5
"""What `make up` runs: the documents show five peers, at even places of the ring."""

BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SAID = re.compile(r"^ *print\(.*\)  # (.+?)(?: ?\.\.\.)?$", re.MULTILINE)
"""A line of a program that says what it prints, or how that begins."""

HERE = ("make up", ". .venv")
"""What a test has done already: the ring runs, and `meteor` is found."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    language: str
    text: str
    why_not_run: str | None

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands of a shell, each with the lines that it is said to print."""
        commands: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif commands and line.strip():
                commands[-1][1].append(line)
        return commands


def blocks(document: str) -> list[Block]:
    found = BLOCK.finditer(document)
    return [Block(block["language"], block["text"], block["why"]) for block in found]


class Reader:
    """Somebody who reads a document and does what it says, in a folder of their own."""

    def __init__(self, folder: Path, port: int, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.ports = {"74": port, "75": free_ports()}
        self.running: list[Process] = []
        """What goes on in the background, or in other shells."""

    def read(self, document: str) -> None:
        """Do what the blocks of a document say, in their order."""
        printed = ""
        for block in blocks(self.with_real_ports(document)):
            if block.why_not_run is not None:
                continue
            match block.language:
                case "python":
                    printed = self.program(block.text)
                case "text":
                    assert block.text == printed
                case "toml":
                    self.write(block.text)
                case _:
                    for command, said in block.commands:
                        self.command(command, said)

    def with_real_ports(self, document: str) -> str:
        return re.sub(
            r"\b(7[45])0(\d)\b", lambda port: str(self.ports[port[1]] + int(port[2])), document
        )

    def write(self, text: str) -> None:
        """Write a file that has its name in its first line."""
        first = text.splitlines()[0]
        assert first.startswith("# "), f"what is the name of this file? {first}"
        (self.folder / first[2:]).write_text(text)

    def program(self, text: str) -> str:
        """Run a Python program; it prints what its comments say, and that is returned."""
        (self.folder / "program.py").write_text(text)
        done = self.run([sys.executable, "-W", "error", "program.py"])
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        lines = done.stdout.splitlines()
        for said in SAID.findall(text):
            assert any(line.startswith(said) for line in lines), f"{said!r} is not in {lines}"
        return done.stdout

    def command(self, command: str, said: list[str]) -> None:
        """Run a command of a shell. It prints what is said, perhaps in another order."""
        if command.startswith(HERE):
            return
        if command.endswith("&") or command.startswith("meteor up"):
            self.start(command.removesuffix("&"), said)
            return
        meteor_path = f"{Path(sys.executable).parent}:{plain_environment()['PATH']}"
        done = self.run(
            ["sh", "-c", f"{{ {command}\n}} 2>&1; code=$?; wait; exit $code"], PATH=meteor_path
        )
        fails = any(line.startswith("meteor: ") for line in said)
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}"
        if not said:
            return
        expected, came = plain(said), plain(done.stdout.splitlines())
        assert not came - expected, f"{command}\n{done.stdout}"
        for line in (expected - came).elements():
            assert self.running, f"{command}\ndoes not say: {line}\nbut: {done.stdout}"
            self.running[-1].wait_for(line)  # what the command set off there

    def start(self, command: str, said: list[str]) -> None:
        """Start what runs on, and wait for what it says at first."""
        arguments = [quoted or word for quoted, word in re.findall(r"'([^']*)'|(\S+)", command)]
        assert arguments[0] == "meteor"
        started = process(*arguments[1:], folder=self.folder, **self.environment())
        self.running.append(self.stack.enter_context(started))
        for line in said:
            if line != "...":
                self.running[-1].wait_for(line)

    def run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=plain_environment(**self.environment(), **environment),
            timeout=PATIENCE_SECONDS,
        )

    def environment(self) -> dict[str, str]:
        return {"METEOR_PEER": f"127.0.0.1:{self.ports['74']}"}


def plain(lines: list[str]) -> Counter[str]:
    """Return lines without what differs from run to run: times, order, and how they are drawn."""
    timeless = (re.sub(r"\b[\d.]+ (ms|s)\b", "a while", line) for line in lines)
    timeless = (re.sub(r"\b\d copies\b", "some copies", line) for line in timeless)
    words = (" ".join(re.sub(r"[│├└─]", " ", line).split()) for line in timeless)
    return Counter(line for line in words if line)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with ring_up(tmp_path / "ring", PEERS) as (_, port), ExitStack() as stack:
        yield Reader(tmp_path, port, stack)


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_what_a_document_shows_is_what_happens(reader: Reader, name: str) -> None:
    document = (ROOT / name).read_text(encoding="utf-8")
    shown = blocks(document)
    assert sum(block.language == "python" for block in shown) >= 2
    assert sum(len(block.commands) for block in shown) >= 5
    reader.read(document)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_the_spaces_in_the_documents_are_usable(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language == "toml":
            Space.from_toml(block.text)


# -- links and names -------------------------------------------------------------------------------


def without_code(document: str) -> str:
    return BLOCK.sub("", document)


def anchors(path: Path) -> set[str]:
    """Return the names under which a document's headings are linked to."""
    headings = re.findall(
        r"^#+ (.+)$", without_code(path.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", without_code(path.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{link}: there is no such file"
        assert target.is_relative_to(ROOT), f"{link}: it leads out of the project"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_every_public_name_is_in_the_docs() -> None:
    prose = "\n".join(without_code(path.read_text(encoding="utf-8")) for path in DOCS)
    code = "\n".join(re.findall(r"`([^`\n]+)`", prose))
    missing = [name for name in meteor.__all__ if not re.search(rf"\b{name}\b", code)]
    assert missing == []
