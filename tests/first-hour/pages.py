"""Reads pages as the tests of the documentation do (crates/interflow/tests/docs/pages.rs): blocks, commands, and what these print."""

import re
import typing


class Block(typing.NamedTuple):
    language: str
    file: str | None  # the block is the content of this file
    heading: str
    line: int
    text: str


class Command(typing.NamedTuple):
    line: int
    script: str
    shown: list[str] | None  # None where the page shows no output: the command must succeed


def blocks(text):
    found, heading, inside = [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        if inside is not None and line.startswith("```"):
            language, file = (inside[0].split() + ["", ""])[:2]
            found.append(Block(language, file or None, heading, inside[1], "".join(f"{line}\n" for line in inside[2])))
            inside = None
        elif line.startswith("```"):
            inside = (line[3:], number, [])
        elif inside is not None:
            inside[2].append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return found


def commands(block):
    """Of a `console` block, in which `$ ` starts a command, or a `sh` block, in which each line is one."""
    found, continues = [], False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        begins = line.startswith("$ ") if block.language == "console" else line.strip() and not line.startswith("#")
        more = line.startswith("> ") and block.language == "console" and not found[-1].shown
        if continues or more:
            found[-1] = found[-1]._replace(script=found[-1].script + "\n" + (line[2:] if more else line))
            continues = line.endswith("\\")
        elif begins:
            found.append(Command(number, line.removeprefix("$ "), [] if block.language == "console" else None))
            continues = line.endswith("\\")
        elif block.language == "console":
            found[-1].shown.append(line)
    return found


def starts_an_instance(script):
    words = script.split()
    return words[0] == "interflow" and bool({"run", "demo"} & set(words)) and "--help" not in words


def only_reads(script):
    words = script.split()
    return words[0] == "cat" or (
        words[0] == "interflow" and words[1] in ("flows", "conversations", "pending") and words[2] in ("list", "show", "count", "stats", "export")
    )


def matches(shown, printed):
    """Numbers and identifiers may differ; `…` is any text within a line, and alone any number of lines."""
    reduced = lambda lines: [line for line in map(normalized, lines) if line]
    return lines_match(reduced(shown), reduced(printed.splitlines()))


def lines_match(shown, printed):
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(lines_match(shown[1:], printed[n:]) for n in range(len(printed) + 1))
    line = ".*".join(map(re.escape, shown[0].split("…")))
    return bool(printed) and bool(re.fullmatch(line, printed[0])) and lines_match(shown[1:], printed[1:])


def normalized(line):
    def token(match):
        word = match[0]
        is_long = len(word) >= 16 and re.search("[0-9]", word)
        return "#" if is_long or re.fullmatch("[0-9A-Z]{8,}", word) else re.sub("[0-9]+", "#", word)

    line = re.sub("[0-9A-Za-z]+", token, " ".join(line.split()))
    while "#.#" in line:
        line = line.replace("#.#", "#")
    return re.sub("# [mµu]s", "# s", line)
