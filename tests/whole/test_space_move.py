"""A real ring moves to a space that was learnt from its own data, and starts again in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.whole.rings_up import command, ring_up


@pytest.mark.slow
def test_a_ring_moves_to_what_it_has_learnt(tmp_path: Path) -> None:
    state, following = tmp_path / "ring", tmp_path / "next.toml"
    with ring_up(state) as (up, port):
        for i in range(12):
            code, _, said = command(port, "post", f"type=fan, location=room{i}", str(i))
            assert code == 0, said
        code, definition, said = command(port, "space", "learn")
        assert code == 0, said
        following.write_text(definition)
        code, output, said = command(port, "space", "move", str(following))
        assert code == 0, said
        assert output == "moved to version 2 of lab\n"
        assert "3 peers frozen" in said
        assert_moved(port)
        code, output, said = command(port, "space", "move", str(following))
        assert code == 0, said
        assert output == "the ring has version 2 of lab already: nothing to do\n"
        assert up.end() == 0
    with ring_up(state) as (up, port):
        assert_moved(port)
        assert up.end() == 0


def assert_moved(port: int) -> None:
    code, output, said = command(port, "retrieve", "type=*")
    assert code == 0, said
    assert len(output.splitlines()) == 12
    assert "lab, version 2" in command(port, "space")[1]
