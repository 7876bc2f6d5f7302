"""List findings: ``python -m tests.prose [--rule RULE] [PATH ...]``; write fewer allowed ones: ``--lower``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.prose import ALLOWED, allowed, count, find, readability, sentences, words
from tests.prose.texts import files, read


def lower(counts: dict[str, dict[str, int]]) -> None:
    """Write the counts to ``allowed.toml`` where they are below it."""
    lines = [line for line in ALLOWED.read_text("utf-8").splitlines() if line.startswith("#")]
    for rule, groups in allowed().items():
        lines += ["", f"[{rule}]"]
        lines += [f"{group} = {min(most, counts.get(rule, {}).get(group, 0))}" for group, most in groups.items()]
    ALLOWED.write_text("\n".join(lines) + "\n", "utf-8", newline="\n")


def main() -> None:
    """Print findings and figures, or lower the allowed numbers."""
    parser = argparse.ArgumentParser(prog="python -m tests.prose", description="List what breaks the rules of prose.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files and folders to read (all)")
    parser.add_argument("--rule", help="list one rule: dialect, long, start, spelling, name or hard")
    parser.add_argument(
        "--lower", action="store_true", help="write today's numbers to allowed.toml where they are lower"
    )
    arguments = parser.parse_args()
    texts, names = read(files([] if arguments.lower else arguments.paths))
    findings = find(texts, names)
    if arguments.lower:
        lower(count(findings))
        return
    for finding in findings:
        if arguments.rule in {None, finding.rule}:
            print(finding)
    for rule, groups in count(findings).items():
        print(f"{rule}: " + ", ".join(f"{number} in {group}" for group, number in groups.items()))
    lengths = [len(words(part)) for text in texts if text.flows for _, part in sentences(text)]
    lengths = [length for length in lengths if length > 1]
    if lengths:
        over = [100 * sum(length > most for length in lengths) / len(lengths) for most in (20, 30)]
        print(f"sentences: {len(lengths)}, {over[0]:.1f} % over 20 words, {over[1]:.1f} % over 30")
    if pages := readability(texts):
        worst = min(pages, key=pages.__getitem__)
        print(
            f"reading ease: {sum(pages.values()) / len(pages):.0f} in the mean, {pages[worst]:.0f} at least ({worst})"
        )


if __name__ == "__main__":
    main()
