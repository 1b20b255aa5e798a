"""Texts on which tokenizers disagree, and random texts determined by the seed.

Random characters are those assigned in Unicode 14, on which Debian's Python, PCRE2 and the tokenizers library
agree. Requires a Python with Unicode 14 and nothing else.
"""

import random
import unicodedata

WHITE_SPACE = [*map(chr, [*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
                          0x205F, 0x3000])]
NEARLY_SPACE = [*map(chr, [0x1C, 0x1D, 0x1E, 0x1F, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x00AD, 0x0000])]
WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
 which one you were her all she there would their we him been has when who will more no if out so said what up its
 about into than them can only other new some could time these two may then do first any my now such like our over
 man me even most made after also did many before must through back years where much your way well down should
 because each just those people how too little state good very make world still own see men work long get here
 between both life being under never day same another know while last might us great old year off come since
 against go came right used take three""".split()

FIXED = [
    "", " ", "  ", "\n", "\r\n", "\t", "\0", "a", "é", "e\u0301", "\u0301", "ﬁ", "①", "½", "Ⅷ", "ⅷ", "٣", "१२३", "1234567",
    "Hello, world! It's they're I'VE we'd 'S 'lL 'ſ dON'T", "don’t can’t", "''s'''t", " 's", "x's\n't",
    "1 22 333 4444 55555 3.14159e-10 0x1F", "٠١٢٣٤٥٦٧٨٩ 一二三 〇 ²³ ½⅓ Ⅻ",
    "naïve café Ångström Å Å A\u030A ñ n\u0303 ộ o\u0323\u0302 o\u0302\u0323 \u1E69 s\u0323\u0307",
    "한국어 텍스트 \u1112\u1161\u11AB\u1100\u116E\u11A8 가\u11A8 \uD55C",
    "日本語のテキスト、カタカナ・ひらがな。ガ カ\u3099 が か\u3099 ｶﾞ 𠮷野家 〜ー々",
    "Привет, мир! Ёлка Е\u0308лка й и\u0306", "Ελληνικά ΐ ι\u0308\u0301 ᾳ ΐ", "עִבְרִית שָׁלוֹם \uFB2A", "العربية ٱلسَّلَامُ عَلَيْكُمْ",
    "ไทย ภาษาไทย กำลัง ທ", "हिन्दी नमस्ते क\u093C क़ ড়", "தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල", "བོད་སྐད ꧋ ជំរាបសួរ မြန်မာ",
    "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ #️⃣ ❤️ ☺️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🫠 👩🏽‍🚀", "z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307 Z̷̨͎a̸l̶g̴o̵",
    "def f(x):\n    return x**2  # square\n\n\nclass A:\n\tpass\n", "if (a && b || !c) { x += 1; } // ok\r\n\r\n\r\n}",
    "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a<>b;--x", "C:\\Users\\x\\n \\u0041 \\\\", "a_b-c.d/e\\f@g#h$i%j^k&l*m(n)",
    "https://example.org/a?b=c&d=%20#e", "\u0000\u0001\u0002\u001b[0m\u007f\u0080\u009f", "\u2028\u2029\u0085 x\u0085y",
    "   leading", "trailing   ", "a  b   c    d", "a \n b\n \nc\n\n \n\nd", " \n", "\n ", "\r\r\n\n\r", "a\u00A0b\u3000c\u2009d",
    "\u180Ex \u180E y", "\uFEFFx", "x\u200By", "\u200D\u200D", "\u00ADsoft", "\uFFFD\uFFFD", "\uE000\uF8FF\U000F0000\U0010FFFD",
    "\uFDD0\uFFFE\uFFFF\U0001FFFE", "Ⓐⓐ🄰🅐🅰", "ǅ ǆ Ǆ ʰ ˈ ˠ ª º", "_a_ __ ‿ ⁀ ﹍", "，。！？；：“”‘’（）【】《》", "…—–‐-−", "€£¥₹₿ ¤ ± × ÷ ∑ ∫",
    "a" * 3000, " " * 3000, "\n" * 1000, "ab" * 2000, "=" * 500, "1" * 1000, "あ" * 500, "👍" * 300, "\u0301" * 300, "\u0301\u0316" * 200,
    " \n" * 500, "\u3000" * 200, "'s" * 200, "a\u0301" * 300, "  a" * 300, "é" * 500, "\t" * 100 + "x", "A" * 31 + "b" * 31,
]


def assigned_characters():
    """One list per general category, without surrogates and unassigned characters."""
    by_category = {}
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category not in ("Cs", "Cn"):
            by_category.setdefault(category, []).append(chr(code))
    return by_category


class Generator:
    def __init__(self, seed, added_tokens):
        self.random = random.Random(seed)
        self.added = added_tokens
        self.by_category = assigned_characters()
        self.categories = sorted(self.by_category)
        self.blocks = [block for start in range(0, 0x30000, 0x80)
                       if len(block := [chr(c) for c in range(start, start + 0x80)
                                        if unicodedata.category(chr(c)) not in ("Cs", "Cn")]) > 8]
        self.marks = self.by_category["Mn"] + self.by_category["Mc"]

    def character(self):
        return self.random.choice(self.by_category[self.random.choice(self.categories)])

    def word(self):
        word = self.random.choice(WORDS)
        return self.random.choice([word, word, word, word.capitalize(), word.upper()])

    def part(self):
        pick = self.random.random
        choose = self.random.choice
        repeat = self.random.randint
        kind = repeat(0, 15)
        if kind <= 3:
            return self.word() + choose(["", "", ",", ".", "'s", "'ll", "-", "_", "1", "\u0301"])
        if kind == 4:
            return "".join(self.character() for _ in range(repeat(1, 6)))
        if kind == 5:
            block = choose(self.blocks)
            return "".join(choose(block) for _ in range(repeat(1, 10)))
        if kind == 6:
            return choose(WHITE_SPACE) * repeat(1, 3) + choose(["", choose(WHITE_SPACE)])
        if kind == 7:
            return choose([" ", "  ", "\n", "\n\n", " \n", "\r\n", "\t", "   "])
        if kind == 8:
            return choose(NEARLY_SPACE + WHITE_SPACE)
        if kind == 9:
            return str(repeat(0, 10 ** repeat(1, 9)))
        if kind == 10:
            return choose("aeiounAEIOUN가カはあ") + "".join(choose(self.marks) for _ in range(repeat(1, 4)))
        if kind == 11:
            token = choose(self.added)
            if pick() < 0.3:
                token = token[: repeat(1, len(token))] + choose(["", token])
            return choose(["", "", " ", "\n", "x", "\u0301", "é", "1", "<"]) + token + choose(["", "", " ", "\n", "x", "\u0301", ">", "'s"])
        if kind == 12:
            return "".join(choose("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(repeat(1, 5)))
        if kind == 13:
            return self.character() * repeat(1, 40)
        if kind == 14:
            return choose(FIXED[:80])
        return chr(choose([repeat(0x1100, 0x11FF), repeat(0xAC00, 0xD7A3), repeat(0x3040, 0x30FF), repeat(0x4E00, 0x9FFF)]))

    def text(self):
        return "".join(choice + self.random.choice(["", "", " "]) for choice in
                       (self.part() for _ in range(self.random.randint(1, 14))))


def texts(count, seed, added_tokens):
    """`count` texts: the fixed ones, added tokens in odd surroundings, then random ones."""
    generator = Generator(seed, added_tokens)
    all_texts = list(FIXED)
    for token in added_tokens[:40]:
        all_texts += [token, f" {token} ", f"a{token}b", token + token, token[:-1], token[1:], f"{token}\u0301", f"'{token}'s"]
    while len(all_texts) < count:
        all_texts.append(generator.text())
    return all_texts[:count]
