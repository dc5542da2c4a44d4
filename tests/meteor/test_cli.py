"""The `meteor` command without a ring: its help and docs, what it refuses, how things look."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from arms.errors import ProfileError
from arms.message import AGGREGATES, Action
from meteor.cli.client import Access
from meteor.cli.display import count, duration, item_fields, item_text, percent, plain, say_lost
from meteor.cli.failures import Failure
from meteor.cli.group import Commands
from meteor.cli.main import cli
from meteor.cli.node import SETTINGS
from meteor.cli.post import ACTIONS
from meteor.cli.ring import broken_links, silent_peers
from meteor.client.results import TTL_SECONDS, Item, Receipt, RingReport
from meteor.client.ring import DEADLINE_SECONDS
from meteor.config import PRESETS, Config, load_config, load_space
from meteor.errors import ConfigError, NoAnswer
from meteor.version import VERSION

DOCS = Path(__file__).parents[2] / "docs"


def meteor(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="meteor", **options)


def commands(group: click.Group = cli, path: str = "meteor") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


ALL = list(commands())


def section(path: str) -> str:
    """Return the section of a command in docs/cli.md."""
    _, found, rest = (DOCS / "cli.md").read_text(encoding="utf-8").partition(f"\n## {path}\n")
    assert found, f"docs/cli.md has no section '## {path}'"
    return rest.partition("\n## ")[0]


SHARED = {"peers", "seconds", "as_json"}
"""Options of all client commands: they have one section for all."""


# -- help and docs -------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_every_command_has_help_with_an_example(path: str, command: click.Command) -> None:
    result = meteor(*path.split()[1:], "--help")
    assert result.exit_code == 0
    assert command.help
    assert f"\n    {path}" in result.output or f'"$({path}' in result.output
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.opts} has no help"


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_every_command_and_option_is_documented(path: str, command: click.Command) -> None:
    text = section(path)
    group = path.rpartition(" ")[0]
    if group != "meteor":
        text += section(group)  # which has the options of all its commands
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not (
            {"peers"} <= {p.name for p in command.params} and parameter.name in SHARED
        ):
            longest = max(parameter.opts, key=len)
            assert f"`{longest}" in text, f"docs/cli.md does not mention {path} {longest}"


def test_options_of_all_clients_are_documented() -> None:
    text = section("Options of commands that talk to a ring")
    for option in ("`--peer ", "`METEOR_PEER`", "`--seconds`", "`--json`"):
        assert option in text


def test_every_setting_is_documented_with_its_variable_and_default() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for field in fields(Config):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{field.name}` | ")]
        assert f"| `METEOR_{field.name.upper()}` |" in row
        if field.default not in ("", ()):
            assert f"| `{field.default}` |" in row


def test_every_setting_has_a_flag() -> None:
    flags = {name.replace("-", "_") for name, _, _ in SETTINGS}
    assert flags == {field.name for field in fields(Config)} | {"preset"}
    choices = {name: takes for name, takes, _ in SETTINGS if isinstance(takes, tuple)}
    assert choices["preset"] == tuple(PRESETS)


def test_what_is_written_out_for_speed_is_what_the_library_has() -> None:
    assert tuple(ACTIONS) == tuple(Action)
    options = {path: {p.name: p for p in command.params} for path, command in ALL}
    aggregate = options["meteor retrieve"]["aggregate"].type
    assert isinstance(aggregate, click.Choice)
    assert tuple(aggregate.choices) == AGGREGATES
    assert options["meteor post"]["seconds"].default == DEADLINE_SECONDS
    assert options["meteor post"]["ttl"].default == "1h"
    assert TTL_SECONDS == 3600


def test_help_loads_nothing_slow() -> None:
    program = (
        "import sys; from meteor.cli.main import cli; "
        "print(sorted({'trio', 'numpy', 'rich', 'squid', 'meteor.client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_version() -> None:
    assert meteor("--version").output == f"meteor, version {VERSION}\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = meteor("completion", shell)
    assert result.exit_code == 0
    assert f"_METEOR_COMPLETE={shell}_complete" in result.output


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["post"], "Missing argument 'PROFILE'"),
        (["post", "a", "b", "--data-file", "-"], "not both"),
        (["post", "a", "--ttl", "soon"], "'soon' is no time"),
        (["post", "a", "--context", "unit"], "write key=value"),
        (["post", "a", "--action", "fetch"], "'store'"),
        (["post", "a", "--seconds", "0"], "0<x<=300"),
        (["post", "a", "--peer", ","], "give the address of a peer"),
        (["retrieve", "a", "--limit", "0"], "x>=1"),
        (["retrieve", "a", "--limit", "3", "--one"], "not both"),
        (["retrieve", "a", "--of", "degree"], "--of needs --aggregate"),
        (["retrieve", "a", "--aggregate", "avg"], "needs --of ATTRIBUTE"),
        (["retrieve", "a", "--aggregate", "count", "--consume"], "over all matches"),
        (["watch", "a", "--interests", "--replay"], "--replay is for data"),
        (["leave", "--peer", "a:1,b:2"], "name the one peer"),
        (["up", "--peers", "0"], "1<=x<=64"),
        (["up", "--port", "65535"], "65535 is the last"),
        (["node", "--sync", "never"], "'full'"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_right(arguments: list[str], words: str) -> None:
    result = meteor(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_data_beyond_the_bound_are_refused_before_they_are_sent() -> None:
    result = meteor("post", "type=big", "-", input=b"x" * (1024 * 1024 + 1))
    assert result.exit_code == 1
    assert "at most 1,048,576 bytes" in result.stderr


def test_an_address_that_is_none() -> None:
    result = meteor("ring", "--peer", "localhost")
    assert result.exit_code == 1
    assert result.stderr.startswith("meteor: 'localhost' is no address; write host:port")
    assert meteor("forget", "bogus").stderr.startswith("meteor: 'bogus' is no address; write host:")


def test_a_space_file_with_several_faults(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('name = "x"\n[[dimension]]\nname = "a"\ncodec = "colour"\n')
    for arguments in (
        ["space", str(file)],
        ["up", "--space", str(file), "--state", str(tmp_path / "ring")],
        ["node", "--space", str(file), "--state", str(tmp_path / "peer")],
    ):
        result = meteor(*arguments)
        assert result.exit_code == 1
        assert "version is missing" in result.stderr
        assert "unknown codec 'colour'" in result.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_a_space_file_that_is_not_there() -> None:
    result = meteor("space", "nowhere.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "meteor: can't read the space nowhere.toml: No such file or directory\n"


def test_a_space_file_is_shown_and_copied(tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text(load_space("").to_toml())
    shown = meteor("space", str(copy))
    assert shown.exit_code == 0
    for words in ("lab, version 1", "location", "-40 .. 150", "linear", "Open:"):
        assert words in shown.stdout
    assert json.loads(meteor("space", str(copy), "--json").stdout)["dimensions"][0] == {
        "name": "type",
        "codec": "keyword",
    }
    assert meteor("space", str(copy), "--toml").stdout == copy.read_text()


def test_a_space_is_learnt_from_a_file_of_profiles(tmp_path: Path) -> None:
    base, profiles = tmp_path / "base.toml", tmp_path / "profiles.txt"
    base.write_text(load_space("").to_toml())
    lines = [f"type=temperature, location=room{i % 9}, degree={i % 50}" for i in range(300)]
    lines += ["", json.dumps({"id": "x", "profile": "type=fan, location=hall"})]
    profiles.write_text("\n".join(lines))
    learnt = meteor("space", "learn", str(profiles), "--space", str(base), "--points", "16")
    assert learnt.exit_code == 0
    assert "learnt from 301 profiles of 301; the fullest of 64 equal arcs has" in learnt.stderr
    following = tmp_path / "next.toml"
    following.write_text(learnt.stdout)
    shown = meteor("space", str(following)).stdout
    for words in ("lab, version 2", "fan .. temperature", "2 learnt keywords", "learnt numbers"):
        assert words in shown
    fewer = meteor(
        "space", "learn", "--sample", "50", "--json", "--space", str(base), str(profiles)
    )
    report = json.loads(fewer.stdout)
    assert (report["profiles"], report["of"]) == (50, 301)
    assert report["max_over_mean_after"] < report["max_over_mean_before"]


def test_what_a_space_can_not_be_learnt_from(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text(load_space("").to_toml())
    for text, words in (
        ("type=fan\ntype=(", "meteor: line 2: column"),
        ("type=fan*", "meteor: line 1: data can't carry 'type=fan*'"),
        ('{"id": 1}', 'meteor: line 1: a JSON object without a "profile"'),
        ("", "meteor: there are no data to learn from"),
        ("degree=warm", "meteor: a profile does not fit the space 'lab': degree: is a number"),
    ):
        result = meteor("space", "learn", "-", "--space", str(base), input=text)
        assert result.exit_code == 1
        assert result.stderr.startswith(words)


def test_settings_are_refused_all_at_once(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('samples = 0\ncolour = "red"\nfingers = true\n')
    environment = {"METEOR_PRESET": "moon", "METEOR_SYNC": "maybe"}
    result = meteor("node", "--config", str(file), "--id", "north", env=environment)
    assert result.exit_code == 1
    for words in (
        "colour: no such setting",
        "fingers: True is not a whole number",
        "id: 'north' is not a whole number",
        "samples: 0; use 1 to 64",
        "preset: 'moon'; use local, lab, wide",
        "sync: 'maybe'; use full or normal",
    ):
        assert words in result.stderr
    result = meteor("node", "--samples", "0", "--listen", "here")
    assert "samples: 0; use 1 to 64" in result.stderr
    assert "listen: 'here' is no address" in result.stderr


def test_a_peer_at_every_address_must_say_which_one_is_its_own() -> None:
    result = meteor("node", "--preset", "lab")
    assert result.exit_code == 1
    assert "advertise: 0.0.0.0:7400 is every address of this host" in result.stderr


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('samples = 2\nsuccessors = 2\nfingers = 2\njoin = ["a:1", "b:2"]\n')
    environment = {"METEOR_SUCCESSORS": "3", "METEOR_FINGERS": "3", "METEOR_PEER": "c:3"}
    config = load_config(file, environment, {"fingers": "4", "samples": None})
    assert (config.samples, config.successors, config.fingers) == (2, 3, 4)
    assert config.join == ("a:1", "b:2")
    assert load_config(file, {"METEOR_JOIN": "c:3, d:4"}, {}).join == ("c:3", "d:4")
    with pytest.raises(ConfigError, match="use local, lab, wide"):
        load_config(None, {"METEOR_PRESET": "moon"}, {})


# -- what becomes of errors ------------------------------------------------------------------------


def failing(error: BaseException) -> click.Group:
    group = Commands("meteor")

    @group.command()
    def fail() -> None:
        """Fail."""
        raise error

    return group


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoAnswer("too late"), "meteor: too late\n"),
        (ExceptionGroup("nursery", [NoAnswer("too late")]), "meteor: too late\n"),
        (
            ProfileError("no value", "type=", 6),
            "meteor: column 6: no value\n  type=\n       ^\n",
        ),
        (PermissionError(13, "Permission denied", "roof.jpg"), "meteor: roof.jpg: Permission"),
        (Failure("as it is"), "meteor: as it is\n"),
    ],
)
def test_expected_errors_are_one_message_and_exit_code_1(error: Exception, words: str) -> None:
    result = CliRunner().invoke(failing(error), ["fail"])
    assert result.exit_code == 1
    assert result.stderr.startswith(words)


def test_ctrl_c_in_a_nursery_ends_quietly() -> None:
    errors = BaseExceptionGroup("nursery", [KeyboardInterrupt(), ValueError("on the way out")])
    result = CliRunner().invoke(failing(BaseExceptionGroup("outer", [errors])), ["fail"])
    assert (result.exit_code, result.output) == (130, "")


def test_a_bug_is_not_hidden() -> None:
    result = CliRunner().invoke(failing(ZeroDivisionError("a bug")), ["fail"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_an_incomplete_receipt_is_a_warning_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receipt = Receipt("1", complete=False, peers=2, copies=2, matches=0, missing=0.25)
    monkeypatch.setattr(Access, "run", lambda self, work: receipt)
    result = meteor("post", "degree=1..2")
    assert result.exit_code == 2
    assert result.stdout == "stored, 2 copies so far; notified 0 watchers\n"
    assert result.stderr.startswith("meteor: 25.0% of the ring did not answer")
    shown = json.loads(meteor("post", "degree=1..2", "--json").stdout)
    assert (shown["complete"], shown["missing"]) == (False, 0.25)


# -- how things look -------------------------------------------------------------------------------


def item(data: bytes, profile: str = "type=note") -> Item:
    return Item("1", profile, data, "someone", {}, 0)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", "type=note"),
        (b"hello\n", "type=note -> hello"),
        ("grüße".encode(), "type=note -> grüße"),
        (b"one\ntwo", "type=note ->\n    one\n    two"),
        (b"\xff\x00", "type=note -> 2 bytes: ff 00"),
        (b"\x1b[2J", "type=note -> 4 bytes: 1b 5b 32 4a"),  # it would clear the terminal
        (bytes(17), "type=note -> 17 bytes:" + " 00" * 16 + " ..."),
    ],
)
def test_items_for_people(data: bytes, shown: str) -> None:
    assert click.unstyle(item_text(item(data))) == shown


def test_a_profile_can_not_steer_the_terminal() -> None:
    assert plain("a='\x1b[2J'\n") == "a='\\x1b[2J'\\n"


def test_items_for_programs() -> None:
    assert item_fields(item(b"hello"))["data"] == "hello"
    binary = item_fields(item(b"\xff"))
    assert "data" not in binary
    assert binary["data_base64"] == "/w=="


def test_who_is_lost_is_said_with_what_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    say_lost([])
    say_lost(["a:1"])
    say_lost(["a:1", "b:2"])
    one, two = capsys.readouterr().err.splitlines()
    assert one.startswith("meteor: a:1 is out of reach")
    assert one.endswith("This ends when it is back; if not, `meteor forget a:1` ends it")
    assert two.startswith("meteor: a:1, b:2 are out of reach")
    assert two.endswith("This ends when they are back; if not, `meteor forget ADDRESS` ends it")


def test_numbers_for_people() -> None:
    assert (count(1, "copy", "copies"), count(1200, "copy", "copies")) == ("1 copy", "1,200 copies")
    assert [duration(s) for s in (0.4, 59, 61, 3725, 90_000)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "1 h 2 min",
        "1 d 1 h",
    ]
    assert [percent(share) for share in (0, 0.0001, 0.2, 1)] == ["0.0%", "<0.1%", "20.0%", "100.0%"]


def test_a_ring_is_whole_when_each_successor_is_the_next_peer() -> None:
    def peer(address: str, predecessor: str | None, *successors: str) -> dict[str, Any]:
        successor = successors[0] if successors else None
        return {
            "address": address,
            "predecessor": predecessor,
            "successor": successor,
            "successors": list(successors),
        }

    whole = RingReport((peer("a", "c", "b"), peer("b", "a", "c"), peer("c", "b", "a")), True, 0)
    assert (broken_links(whole), silent_peers(whole)) == ([], [])
    alone = RingReport((peer("a", None),), True, 0)
    assert (broken_links(alone), silent_peers(alone)) == ([], [])
    closing = RingReport((peer("a", "c", "x", "c"), peer("c", "x", "a")), True, 0)
    assert broken_links(closing) == ["a has the successor x, the next peer is c"]
    assert silent_peers(closing) == ["x"]
