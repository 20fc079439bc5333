#!/usr/bin/env python3
"""Counts of the house (size, functions, unsafe, names, circles) in git revisions, side by side, in Markdown.

    python3 -I docs/measurements/house-counts.py [REVISION...]

Without a revision HEAD is counted; the lists below the table belong to the last revision.
Every count is textual: comments and strings are blanked out, braces are matched, macros are not expanded.
Product code is Rust under `src/` of every crate, without items under `#[cfg(test)]`, without the files of
modules declared under it, and without `tests/`, `examples/`, `build.rs`, `fuzz/` and `crates/testkit`.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from itertools import accumulate

TOKEN = re.compile(
    r"""(?P<comment> //[^\n]* | /\*.*?\*/ )
    | \b[bc]?r(?P<hashes>\#*)".*?"(?P=hashes) | [bc]?"(?:\\.|[^"\\])*"
    | b?'(?:\\u\{[^}]*\}|\\x..|\\.|[^\\'\n])' """, re.S | re.X)
FUNCTION = re.compile(r"\bfn\s+(\w+)")
HEAD_OF_ITEM = re.compile(
    r"(?P<attributes>(?:#\[[^\]]*\]\s*)+)(?:pub(?:\([^)]*\))?\s+)?"
    r"(?:mod\s+(?P<file>\w+)\s*;|(?P<value>use|const|static|type|let)\b(?!\s+fn)|(?P<field>\w+[:,]))?")
TYPE = re.compile(r"\b(?:struct|enum|trait|union)\s+([A-Z]\w*)|^(?:pub(?:\([a-z]+\))? )?type ([A-Z]\w*)", re.M)
GROUP = re.compile(r"((?:\w+::)+)\{([^{}]*)\}")
PATH = re.compile(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+")
LANE_OR_APP = re.compile(r'\b(?:laneway_|Lane::)\w+|"\w+"')
WORD_OF_NAME = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# A step of SplitMix64, of xorshift, of a linear congruence.
GENERATOR = re.compile(r"0x(?i:bf58_?476d_?1ce4_?e5b9)|(self\.0|state) \^= \1 << \d+;|6_?364_?136_?223_?846_?793_?005")
WORDS = ["said", "told", "came", "lent", "nobody", "whoever"]
TYPE_NAMES = ["Place", "Told", "Said", "Came", "Own", "Lent", "Kind", "State", "Shared"]
MEASURING = ("lab", "trace", "crates/tracer", "crates/page", "crates/stats")


def blank(text):
    return "\n".join(" " * len(line) for line in text.split("\n"))


def split(text):
    """The code, the comments and the strings of a source: three texts of its length."""
    sides, at = ([], [], []), 0
    for found in TOKEN.finditer(text):
        gap, token = text[at : found.start()], found.group()
        mine = 1 if found["comment"] else 2
        for n, side in enumerate(sides):
            side += [blank(gap) if n else gap, token if n == mine else blank(token)]
        at = found.end()
    return ["".join(side) + (blank(text[at:]) if n else text[at:]) for n, side in enumerate(sides)]


def item_end(code, at, ends=";{"):
    """Where the item that begins at `at` ends: behind its braces, or behind another of `ends`."""
    depth, closes = 0, False
    for found in re.compile(r"[(){};,\[\]]").finditer(code, at):
        character = found.group()
        if depth == 0 and not closes and character in ends:
            if character != "{":
                return found.end()
            closes = True
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or (closes and depth == 0):
            return found.start() + closes
    return len(code)


def items_of_tests(code):
    """Ranges of the items under `#[cfg(test)]`, and the names of the modules among them that are files."""
    ranges, modules, end = [], [], 0
    while (start := code.find("#[cfg(test)]", end)) >= 0:
        head = HEAD_OF_ITEM.match(code, start)
        end = item_end(code, head.end("attributes"), ";" if head["value"] else ",;" if head["field"] else ";{")
        ranges.append((start, end))
        modules += [head["file"]] if head["file"] else []
    return ranges, modules


class Source:
    def __init__(self, path, crate, text):
        self.path, self.crate, self.sides = path, crate, split(text)
        self.has_generator = bool(GENERATOR.search(self.sides[0]))
        ranges, self.modules_of_tests = items_of_tests(self.sides[0])
        for start, end in ranges:
            self.sides = [side[:start] + blank(side[start:end]) + side[end:] for side in self.sides]
        self.code, self.comments, self.strings = self.sides
        self.rows = list(zip(*(side.split("\n") for side in self.sides)))
        self.inline_tests = sum(text.count("\n", start, end) + 1 for start, end in ranges)
        self.lines = len(text.splitlines()) - self.inline_tests
        names = path[len(crate) + len("/src/") : -len(".rs")].split("/")
        self.module = tuple(names[:-1] if names[-1] == "mod" or names in (["lib"], ["main"]) else names)

    def functions(self):
        """Length, name, place and nesting of each function with a body."""
        for found in FUNCTION.finditer(self.code):
            end = item_end(self.code, found.end())
            if self.code[end - 1] == "}":
                body, line = self.code[found.end() : end], self.code.count("\n", 0, found.start()) + 1
                nesting = max(accumulate(1 if brace == "{" else -1 for brace in re.findall("[{}]", body)))
                yield body.count("\n") + 1, found[1], f"{self.path}:{line}", nesting

    def unsafe_blocks(self):
        """For each block, whether SAFETY stands within three lines above, or in the comment that reaches there."""
        for found in re.finditer(r"\bunsafe\s*\{", self.code):
            line = self.code.count("\n", 0, found.start())
            top = max(line - 3, 0)
            while top and all(row[1].strip() and not row[0].strip() for row in self.rows[top - 1 : top + 1]):
                top -= 1
            yield any("SAFETY" in comment for _, comment, _ in self.rows[top : line + 1])


def read(revision):
    """Every Rust file of a revision by its kind (product, test, testkit, other), and the folders of crates."""
    command = ["git", "archive", "--format=tar", revision]
    archive = tarfile.open(fileobj=io.BytesIO(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    files = {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}
    crates = {path[: -len("/Cargo.toml")] for path in files if path.endswith("/Cargo.toml")}
    sources, tests, kinds = {}, set(), defaultdict(list)
    for path in sorted(path for path in files if path.endswith(".rs")):
        above = [path[:n] for n, character in enumerate(path) if character == "/" and path[:n] in crates]
        sources[path] = Source(path, above[-1], files[path].decode())
    for path, source in sources.items():
        folder = re.sub(r"/(lib|main|mod)\.rs$|\.rs$", "", path)
        for stem in (f"{folder}/{module}" for module in source.modules_of_tests):
            tests.update(other for other in sources if other == f"{stem}.rs" or other.startswith(f"{stem}/"))
    for path, source in sources.items():
        inside = path[len(source.crate) + 1 :]
        is_other = re.match(r"(fuzz|examples)/", path) or re.match(r"examples/|build\.rs", inside)
        kind = "test" if path in tests or not inside.startswith("src/") else "product"
        kind = "other" if is_other else "testkit" if source.crate == "crates/testkit" else kind
        kinds[kind].append(source)
    return kinds, crates


def imports(source, modules):
    """Modules of the crate that a source names by a path from `crate`, `super` or `self`."""
    code, count = source.code, 1
    while count:
        code, count = GROUP.subn(lambda it: ", ".join(it[1] + name.strip() for name in it[2].split(",")), code)
    for root, *names in (path.split("::") for path in PATH.findall(code)):
        target = {"crate": (), "self": source.module, "super": source.module[:-1]}[root]
        for name in names:
            if name != "super" and (*target, name) not in modules:
                break
            target = target[:-1] if name == "super" else (*target, name)
        if target in modules and target != source.module:
            yield target


def circles(product):
    """Groups of files of one crate each of which imports all others of its group, directly or through others."""
    crates, found = defaultdict(dict), []
    for source in product:
        crates[source.crate][source.module] = source
    for modules in crates.values():
        edges = {name: set(imports(source, modules)) for name, source in modules.items()}
        for between in modules:
            for targets in edges.values():
                targets |= edges[between] if between in targets else set()
        groups = {frozenset(other for other in edges[name] if name in edges[other]) for name in modules}
        found += [[modules[name] for name in sorted(group)] for group in groups if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), group[0].path))


def count(revision):
    """What is counted of a revision, label to value, and lists of names."""
    kinds, crates = read(revision)
    product, every, table = kinds["product"], sum(kinds.values(), []), {}
    code, comments = ("\n".join(source.sides[n] for source in product) for n in range(2))

    def put(label, *values):
        table[label] = " / ".join(f"{value:,}" if isinstance(value, int) else value for value in values)

    def lines(*folders):
        return sum(source.lines for source in product if source.path.startswith(folders))

    def above(values, *bounds):
        return [sum(value > bound for value in values) for bound in bounds]

    rows = [[side.strip() for side in row] for source in product for row in source.rows]
    held = Counter("code" if row[0] or row[2] else "comment" if row[1] else "" for row in rows)
    put("product: files / lines / with code / of comment alone", len(product), lines(""), held["code"], held["comment"])
    for wing in ("crates", "crates/core", "lanes", "apps", "registry", "lab", "trace", "cli", "xtask", "bench"):
        put(f"lines in `{wing}/`", lines(f"{wing}/"))
    put("lines of the measuring wing / its share", lines(*MEASURING), f"{lines(*MEASURING) / lines(''):.0%}")
    inline, apart = sum(source.inline_tests for source in product), sum(source.lines for source in kinds["test"])
    put("tests: lines inline / in files / per line of product", inline, apart, f"{(inline + apart) / lines(''):.2f}")
    functions = sorted((one for source in product for one in source.functions()), reverse=True)
    lengths, sizes = [one[0] for one in functions], [source.lines for source in product]
    for what, values in (("functions", lengths), ("files", sizes)):
        spread = (sorted(values)[int(len(values) * share)] for share in (0.5, 0.9, 0.99))
        put(f"{what}: number / median / p90 / p99 / longest", len(values), *spread, max(values))
    put("functions longer than 100 / 70 / 50 lines", *above(lengths, 100, 70, 50))
    put("functions with braces nested deeper than 5", *above([one[3] for one in functions], 5))
    put("files longer than 800 / 600 lines", *above(sizes, 800, 600))
    blocks = [is_noted for source in product for is_noted in source.unsafe_blocks()]
    put("unsafe blocks / with a SAFETY note", len(blocks), sum(blocks))
    roots = [source.code for source in every if re.search(r"src/(lib|main)\.rs$", source.path)]
    put("crate roots / that forbid unsafe", len(roots), sum("#![forbid(unsafe_code)]" in root for root in roots))
    put("`.unwrap()` / `.expect(`", code.count(".unwrap()"), code.count(".expect("))
    by_hand = [(it.lines, len(list(it.unsafe_blocks()))) for it in product if it.path.endswith("/sys.rs")]
    put("`sys.rs`: files / lines / unsafe blocks", len(by_hand), *map(sum, zip(*by_hand)))
    put("calls of `libc::setsockopt`", code.count("libc::setsockopt("))
    of_random = [bool(GENERATOR.search(source.code)) for source in product]
    put("files with a random generator: product / all", sum(of_random), sum(it.has_generator for it in every))
    found = circles(product)
    largest = ", ".join(f"{len(group)} in {group[0].crate}" for group in found[:3])
    put("import circles: number / files / largest", len(found), sum(map(len, found)), largest)
    named = {it.path: set(LANE_OR_APP.findall(it.code + it.strings)) for it in product}
    for folder, name in sorted(path.split("/") for path in crates if re.match("(lanes|apps)/", path)):
        is_lane = folder == "lanes"
        home = ("lanes/", "xtask/") if is_lane else f"apps/{name}/"
        is_name = re.compile(f"laneway_{name}" + f'|Lane::(?i:{name})|"{name}"' * is_lane).fullmatch
        naming = [path for path, found in named.items() if not path.startswith(home) and any(map(is_name, found))]
        put(f"files elsewhere that name `{folder}/{name}`", len(naming))
    types = Counter(a or b for source in product for a, b in TYPE.findall(source.code))
    put("type names / of several types / of more than 5", len(types), *above(types.values(), 1, 5))
    for name in TYPE_NAMES:
        put(f"types called `{name}`", types[name])
    called = Counter(re.sub(r"^d\d+$", "d", one[1]) for one in functions)
    put("functions called `tell` or `told` / `d1` to `d12`", called["tell"] + called["told"], called["d"])
    parts = Counter(part.lower() for name in re.findall(r"[A-Za-z_]\w*", code) for part in WORD_OF_NAME.findall(name))
    words = Counter(re.findall(r"\w+", comments.lower()))
    for word in WORDS:
        put(f"`{word}` in identifiers / in comments", parts[word], words[word])
    return table, {
        "The longest functions": [f"{one[0]} `{one[1]}` {one[2]}" for one in functions[:5]],
        "Files longer than 800 lines": [f"{it.lines:,} {it.path}" for it in product if it.lines > 800],
    }


def main():
    revisions = sys.argv[1:] or ["HEAD"]
    counted = [count(revision) for revision in revisions]
    print("| count |", " | ".join(revisions), "|\n|---|" + "--:|" * len(revisions))
    for label in counted[-1][0]:
        print(f"| {label} |", " | ".join(table.get(label, "-") for table, _ in counted), "|")
    for title, names in counted[-1][1].items():
        print(f"\n{title}: {'; '.join(names)}.")


if __name__ == "__main__":
    main()
