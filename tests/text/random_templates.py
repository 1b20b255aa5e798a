"""Random expressions and templates over a few variables, determined by the seed."""

import random

VARIABLES = {
    "i": 5, "j": -3, "x": 2.5, "b": True, "z": None, "s": "ab c", "w": " Wörd, two ", "e": "",
    "l": [1, 2, 3], "m": ["b", "a", "C"], "d": {"k": 1, "a": "v"},
    "r": [{"n": "p", "v": 1}, {"n": "q", "v": None}, {"v": 2}],
}
ATOMS = [
    "i", "j", "x", "b", "z", "s", "w", "e", "l", "m", "d", "r", "u", "g", "h", "1", "0", "2.0", "-1", "'ab'",
    "' '", "''", "true", "none", "[]", "[1, 'a']", "(1, 2)", "{'k': 2}", "d.k", "d.q", "r[0]", "r[0].n",
    "l[0]", "l[9]", "s[0]", "m[-1]", "range(3)",
]
BINARY = ["+", "-", "*", "//", "%", "/", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "string", "list", "first", "last", "join",
    "join('-')", "int", "float", "abs", "round", "round(1)", "tojson", "tojson(indent=1)", "default('D')",
    "default('D', true)", "sort|list", "reverse|list", "unique|list", "sum", "min", "max", "items|list",
    "dictsort", "map('string')|list", "select|list", "reject('none')|list", "map(attribute='n')|list",
    "selectattr('v')|list", "replace('a', 'X')", "indent(2)", "batch(2)|list", "e", "safe", "wordcount",
    "truncate(4)", "center(6)", "format", "slice(2)|list", "select('odd')|list", "map('upper')|join",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence",
    "iterable", "true", "false", "odd", "even", "lower", "upper", "callable", "divisibleby 2", "eq 1", "ne 1",
    "gt 1", "in [1, 'ab']", "sameas none",
]
METHODS = [
    "upper()", "lower()", "title()", "strip()", "split()", "split('b')", "split(',', 1)", "rsplit(none, 1)",
    "lstrip('a ')", "rstrip(' c')", "startswith('a')", "endswith('c')", "replace('a', '')", "find('c')",
    "count('a')", "isdigit()", "isalpha()", "splitlines()", "zfill(6)", "get('k')", "get('q', 0)",
    "items()|list", "keys()|list", "values()|list", "index('a')", "format(1)", "join(['x', 'y'])",
    "capitalize()", "append(1)", "update({})",
]
SLICES = ["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[::2]", "['k']", "[5:1:-1]", "[-2:]"]


def expression(rng, depth):
    if depth <= 0 or rng.random() < 0.15:
        return rng.choice(ATOMS)
    inner = lambda: expression(rng, depth - 1)
    kind = rng.randrange(11)
    if kind <= 2:
        return f"({inner()} {rng.choice(BINARY)} {inner()})"
    if kind == 3:
        return f"{inner()} {rng.choice(BINARY)} {inner()}"
    if kind <= 5:
        return f"({inner()})|{rng.choice(FILTERS)}"
    if kind == 6:
        return f"({inner()}) is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind == 7:
        return f"({inner()}).{rng.choice(METHODS)}"
    if kind == 8:
        return f"({inner()}){rng.choice(SLICES)}"
    if kind == 9:
        return f"({inner()} if {inner()} else {inner()})"
    return rng.choice([f"[{inner()}, {inner()}]", f"({inner()},)", f"{{'k': {inner()}}}", f"not {inner()}",
                       f"-({inner()})"])


def spaces(rng):
    return rng.choice(["", " ", "\n", "  \n", "\n  ", "text", " text\n", "\t", "\n\n"])


def tag(rng, body):
    return "{%" + rng.choice(["", "-", "", "+", ""]) + f" {body} " + rng.choice(["", "-", "", "+", ""]) + "%}"


def template(rng, depth):
    if depth <= 0:
        printed = "{{" + rng.choice(["", "-"]) + f" {expression(rng, 2)} " + rng.choice(["", "-"]) + "}}"
        return rng.choice([spaces(rng), printed])
    inner = lambda: spaces(rng) + template(rng, depth - 1) + spaces(rng)
    kind = rng.randrange(9)
    if kind == 0:
        return tag(rng, f"if {expression(rng, 2)}") + inner() + tag(rng, "else") + inner() + tag(rng, "endif")
    if kind == 1:
        iterable = rng.choice(["l", "m", "d", "s", "r", "range(2)", "u", "e"])
        begin = tag(rng, f"for y in {iterable}") + "{{ y }}{{ loop.index }}"
        return begin + inner() + tag(rng, "else") + inner() + tag(rng, "endfor")
    if kind == 2:
        return tag(rng, f"set {rng.choice('ghijsl')} = {expression(rng, 2)}") + inner()
    if kind == 3:
        return tag(rng, f"set {rng.choice('ghij')}") + inner() + tag(rng, "endset") + "{{ g }}{{ i }}"
    if kind == 4:
        begin = tag(rng, "macro f(p, q=i)") + "{{ p }}"
        return begin + inner() + tag(rng, "endmacro") + "{{ f(1) }}{{ f(s, 2) }}"
    if kind == 5:
        return "{#" + rng.choice(["", "-"]) + " c " + rng.choice(["", "-"]) + "#}" + inner()
    if kind == 6:
        return tag(rng, f"with y = {expression(rng, 1)}") + inner() + "{{ y }}" + tag(rng, "endwith")
    if kind == 7:
        return tag(rng, "raw") + spaces(rng) + "{{ x }}" + spaces(rng) + tag(rng, "endraw") + inner()
    return inner() + template(rng, depth - 1)


def requests(seed, count):
    rng = random.Random(seed)
    out = []
    for i in range(count):
        text = "{{ " + expression(rng, rng.randint(1, 4)) + " }}" if i % 2 else template(rng, rng.randint(1, 4))
        out.append({"template": text, "variables": VARIABLES})
    return out
