"""Completion of commands and options by the shell: `meteor completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_METEOR_COMPLETE"
"""What click looks at to know that the shell asks for completions."""


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what lets SHELL complete commands.

    bash: add to ~/.bashrc
      eval "$(meteor completion bash)"
    zsh: add to ~/.zshrc
      eval "$(meteor completion zsh)"
    fish:
      meteor completion fish > ~/.config/fish/completions/meteor.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "meteor", VARIABLE).source())
