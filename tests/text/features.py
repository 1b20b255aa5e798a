"""Small tokenizers, one per feature of tokenizer.json, and the ids of the library for hard texts.

Writes tests/goldens/tokenizer/features.json for tokenizer_oracle_test.py --record: a vocabulary of the 256
bytes, merges and texts, which all cases share, and per case the sections that differ and the ids.
"""

import json


MERGES = [("h", "e"), ("l", "l"), ("o", "Ġ"), ("Ġ", "w"), ("he", "ll"), ("hell", "o"), ("Ġ", "hello"), ("1", "2"),
          ("Ġ", "Ġ"), ("ĠĠ", "ĠĠ"), ("a", "a"), ("aa", "a"), ("Ã", "©"), ("Ġ", "t"), ("Ġt", "he")]
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEXTS = ["", "hello", "hello hello  hello", " hello", "  the  the12 1212a", "don't we'LL I'm 'S", "aaaaaaa aaaa", "a-b--c---d", "-a-", "--",
         "x1y22z333 ٣٤ Ⅷ½①", "日本語abc漢字かな交じりABCdefGHI", "é e\u0301 ﬁ Å A\u030A \u1E9B\u0323", "a\nb\r\nc\n\nd \n e", "\u3000\u00A0\u2003x\u0085y",
         "foo_bar x ‿y Ⓐb c\u0301d e\u200Df", "tab\there\x0b\x0c", "👍🏽 🇩🇪", "hello,world.hello", "$100.00 #1!", "ǅabc ʰx ªº", "\u180E \u200B",
         "12345678", "q\u0301\u0316q\u0316\u0301"]


def alphabet():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    characters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [characters[byte] for byte in range(256)]


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    step = {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [step, byte_level()]}}


def added(*tokens):
    """Tokens as (content, flags...)."""
    flags = ("special", "normalized", "single_word", "lstrip", "rstrip")
    return {"added_tokens": [{"id": 256 + len(MERGES) + i, "content": content, **{flag: flag in given for flag in flags}}
                             for i, (content, *given) in enumerate(tokens)]}


def cases():
    yield "nothing but bytes", {}, TEXTS
    yield "the pattern of GPT-2", {"pre_tokenizer": byte_level(regex=True)}, TEXTS
    yield "a space before each text", {"pre_tokenizer": byte_level(prefix=True)}, TEXTS
    yield "a space before, and the pattern", {"pre_tokenizer": byte_level(prefix=True, regex=True)}, TEXTS
    for individual in (False, True):
        digits = {"type": "Digits", "individual_digits": individual}
        yield f"digits, individual: {individual}", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            digits, byte_level(prefix=individual)]}}, TEXTS
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"split at a hyphen, {behavior}, invert: {invert}", split("-", behavior, invert), TEXTS
            yield f"split at an empty match, {behavior}, invert: {invert}", split("a*", behavior, invert), TEXTS
    yield "split at a string", split(".", "Removed", kind="String"), TEXTS
    yield "split at the empty string", split("", kind="String"), TEXTS
    yield "the pattern of Kimi", split(KIMI), TEXTS
    for pattern in (r"\w+", r"\W+", r"\d+", r"\D+", r"\s", r"\S+", r"\bh|o\b", r"\Ba", r"\h+", r"\H+", r"[\s\d]+", r"[^\S\n]+", r"[\W_]+",
                    r"^.", r".$", r"\A.", r".\z", r"(?m:.+)", r".+", r"(?i:HELLO)", r"[[a-c]x[d-f]]+", r"[a-z&&[^aeiou]]+",
                    r"[^a-z&&[^aeiou]]+", r"\p{Han}+", r"\p{^L}+", r"\P{L}+", r"\p{Letter}+", r"\p{Lu}", r"a{2}", r"a{,2}b?", r"a{2,}",
                    r"a++a", r"(?>a+)a", r"a+?", r"(?<=l)l", r"(?<!l)o", r"l(?!o)", r"[\]\-a]+", r"[a\-z]+", r"[-a]+", r"[]a]+",
                    r"\x41|\x{e9}|\u65e5", r"h(?:e|i)l", r"(he)(l+)", r"{a}|a{x", r"\t|\v|\f", r"(?#comment)a", r"é", r"[é-ü日]+"):
        yield f"split at {pattern}", split(pattern), TEXTS
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield form, {"normalizer": {"type": form}}, TEXTS
    yield "NFD and NFC", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]}}, TEXTS
    yield "merges are ignored for whole tokens", {"pre_tokenizer": byte_level(regex=True), "model": {"ignore_merges": True}}, TEXTS

    around = ["[A]", " [A] ", "x[A]x", "[A][A]", "[A] [A]  [A]", "[B]", " [B] x", "  [B]  [B]x", "[A][B]", "[AB]", "[A]B]", "[A", "A]", "é[A]é",
              "\u3000[B]\u2003y", "_[A]_", "1[A]2", "\u0301[A]\u0301", "-[A]-", "[A]\n\n[B]\n", "[a[A]", "Ⓐ[A]", "\u200D[A]", "x [A] [B] y", "[[A]]"]
    for flags in ((), ("special",), ("lstrip",), ("rstrip",), ("lstrip", "rstrip"), ("single_word",), ("normalized",),
                  ("single_word", "lstrip", "special"), ("normalized", "lstrip", "rstrip")):
        yield f"added tokens, {' '.join(flags) or 'no flags'}", {
            **added(("[A]", *flags), ("[B]", "rstrip", "lstrip"), ("[AB]",), ("[a",)), "normalizer": {"type": "NFC"}}, around
    yield "the longest added token", added(("ab",), ("abcd",), ("bc",), ("bcde",)), ["abcd", "abc", "abcde", "abcbcde", "bab", "aabb", "ababcd"]
    yield "added tokens in normalized text", {
        **added(("<e\u0301>", "normalized"), ("<ü>",), ("<Å>", "normalized", "special")), "normalizer": {"type": "NFC"}}, [
            "<é>", "<e\u0301>", "x<e\u0301>\u0301y", "<ü>", "<u\u0308>", "<Å>", "<A\u030A>", "<\u212B>", "<e\u0301\u0316>", "a\u0301<é><ü>"]
    yield "added tokens and a space before", {**added(("[A]",)), "pre_tokenizer": byte_level(prefix=True)}, ["x[A]y", "[A]", "[A] y", " [A]"]
    yield "an added token in the vocabulary", {"added_tokens": [
        {"id": 256 + 5, "content": "hello", "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}]}, [
            "hello", "xhellox", " hello"]


def tokenizer_of(sections, vocabulary):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary,
             "merges": [list(pair) for pair in MERGES], **sections.get("model", {})}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": byte_level(), "post_processor": None, "decoder": byte_level(),
            **{key: value for key, value in sections.items() if key != "model"}, "model": model}


def record(path, ids_of, without_special):
    """`ids_of(tokenizer, texts)` returns the ids of the library."""
    tokens = alphabet() + ["".join(pair) for pair in MERGES]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    recorded = []
    for name, sections, texts in cases():
        tokenizer = tokenizer_of(sections, vocabulary)
        case = {"name": name, "sections": sections, **({"texts": texts} if texts is not TEXTS else {}),
                "all": ids_of(tokenizer, texts)}
        ordinary = ids_of(without_special(tokenizer), texts)
        if ordinary != case["all"]:
            case["ordinary"] = ordinary
        recorded.append(case)
    base = tokenizer_of({}, vocabulary)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in recorded)
    shared = json.dumps({"base": base, "texts": TEXTS}, ensure_ascii=False, separators=(",", ":"))
    path.write_text('%s,\n"cases":[\n%s\n]}\n' % (shared[:-1], lines), encoding="utf-8")
