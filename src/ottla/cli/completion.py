"""`ottla completion`: a script that has a shell complete commands and their options."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from ottla.cli.command import COMMANDS, Command, load_command
from ottla.cli.options import option_parser
from ottla.cli.terminal import Terminal

BASH: Final = """_ottla() {
    local command=${COMP_WORDS[1]} word=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "%(commands)s" -- "$word"))
        return
    fi
    case $command in
%(cases)s
    esac
    [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word"))
}
complete -o filenames -F _ottla ottla
"""
BASH_CASE: Final = '        %s) COMPREPLY=($(compgen -W "%s" -- "$word")) ;;'
ZSH: Final = "autoload -Uz bashcompinit && bashcompinit\n"
FISH: Final = "complete -c ottla -n __fish_use_subcommand -f -a %s -d '%s'"
FISH_OPTION: Final = "complete -c ottla -n '__fish_seen_subcommand_from %s' -l %s -d '%s'"


class CompletionCommand(Command):
    """Prints the lines that a shell reads to complete the words after `ottla`."""

    name = "completion"
    examples = (
        "source <(ottla completion bash)",
        "ottla completion fish > ~/.config/fish/completions/ottla.fish",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        if arguments.shell == "fish":
            terminal.print(fish_script())
        else:
            terminal.print((ZSH if arguments.shell == "zsh" else "") + bash_script())
        return 0


def options_of(name: str) -> dict[str, str]:
    """The long options of a command, and the first sentence about each."""
    actions = option_parser(load_command(name))._actions
    return {
        option: (action.help or "").partition(". ")[0].replace("'", "")
        for action in actions
        for option in action.option_strings
        if option.startswith("--")
    }


def bash_script() -> str:
    """A function for `complete`; zsh reads it through bashcompinit."""
    cases = "\n".join(BASH_CASE % (name, " ".join(options_of(name))) for name in COMMANDS)
    return (BASH % {"commands": " ".join(COMMANDS), "cases": cases}).rstrip("\n")


def fish_script() -> str:
    """A line for each command and for each option."""
    lines = []
    for name, entry in COMMANDS.items():
        lines.append(FISH % (name, entry.help.replace("'", "")))
        for option, text in options_of(name).items():
            lines.append(FISH_OPTION % (name, option.removeprefix("--"), text))
    return "\n".join(lines)
