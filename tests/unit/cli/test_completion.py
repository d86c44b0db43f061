"""`ottla completion`."""

import subprocess

import pytest

from ottla.cli.command import COMMAND_GROUPS, COMMANDS


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    line = f"{script}\nCOMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}\n_ottla\n"
    show = 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", line + show], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ottla", "top"), ["topics"]),
        (("ottla", "topics", "--desc"), ["--describe"]),
        (("ottla", "tail", "orders", "--whe"), ["--where"]),
    ],
)
def test_bash_completes_commands_and_their_options(ottla, words, offered):
    """The printed script completes the words."""
    assert completed(ottla("completion", "bash").out, *words) == offered


def test_zsh_reads_the_script_of_bash(ottla):
    """The emulation of zsh reads the script."""
    bash, zsh = ottla("completion", "bash").out, ottla("completion", "zsh").out

    assert zsh == f"autoload -Uz bashcompinit && bashcompinit\n{bash}"


def test_fish_has_a_line_for_each_option(ottla):
    """Each option has the first sentence about it."""
    lines = ottla("completion", "fish").lines

    assert any(line.endswith("-l bootstrap-server -d 'The brokers to ask first; they "
                             "name the others'") for line in lines)  # fmt: skip
    assert all(line.count("'") % 2 == 0 for line in lines)


def test_every_command_is_in_one_group_of_the_overview():
    """None is missing from `ottla --help`, and none is there twice."""
    grouped = [name for names in COMMAND_GROUPS.values() for name in names]

    assert sorted(grouped) == sorted(COMMANDS)
