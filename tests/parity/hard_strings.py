"""Strings that tokenizers get wrong: the inputs of the tokenizer comparison. No dependencies."""

import random
import unicodedata as ucd

EMOJI = ["😀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "1️⃣", "❤️", "🧑🏿‍🚀", "🦙", "😶‍🌫️"]
COMBINING = ["e\u0301", "a\u0308\u0323", "Z\u0351\u036b\u0343a\u0328l\u034eg\u0321o\u0489", "\u0301", "q\u0307\u0323",
             "ö o\u0308", "\u1e9b\u0323", "ﬁnal ﬂoor", "Å \u212b A\u030a", "한국어 \u1112\u1161\u11ab", "ＡＢＣ１２３", "½ ² ⅷ ㎏ ™", "1000² 2½x 1000① ²a"]
SCRIPTS = ["你好，世界！", "中文和English混排123", "日本語のテキスト、カタカナとひらがな。", "が か\u3099", "안녕하세요 세계", "مرحبا بالعالم ١٢٣",
           "السَّلامُ عَلَيْكُم", "שלום עולם", "สวัสดีชาวโลก ๑๒๓", "नमस्ते दुनिया", "Привет, мир! ёЁйЙ", "Ελληνικά ς Σ ΟΔΟΣ",
           "İstanbul ıI iİ", "Straße ẞ ß", "ǅ ǆ Ǆ", "ქართული ᲥᲐᲠᲗᲣᲚᲘ", "አማርኛ", "Tiếng Việt", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "\u0b95\u0bca", "ༀ་མ", "ꙮ"]
SPACES = ["", " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \n", "\n ", " \n \n ", "\n\n\n\t\n", "a  b", "a   b    c", " a", "a ",
          "  a  ", "\u00a0", "a\u00a0b", "\u2003x\u2003", "\u3000全角", "\u200bzero\u200bwidth\u200d\u200c", "\ufefftext", "\u2028line\u2029",
          "\u1680ogham", "\u180emvs \u180e", "\u202fnarrow", "\u0085next", "tab\tand space \t mix", "trailing   \n\n  ", " " * 17, " " * 100,
          "\n" * 33, "\t" * 9, "▁", "▁▁", "a▁b", " ▁ ", "▁ a ▁▁ b"]
DIGITS = ["0", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000", "-5", "1e10", "0x1F", "2024-07-26", "a1b2c3", "٣٤٥", "Ⅻ",
          "①②③", "1 2  3", "12:34:56", "+1 (555) 010-9999", "१२३४"]
CONTRACTIONS = ["I'm", "don't", "DON'T", "we'Ll", "you'RE they've", "'s 's", "’s", "it'ſ", "'tis 'twas", "rock'n'roll", "O'Neil's", "'''", "''S", "K's"]
CODE = ["def f(x):\n    return x ** 2  # squared\n", "for (int i=0;i<n;++i){a[i]+=b[i];}", "<html><body class=\"x\">&nbsp;</body></html>",
        "SELECT * FROM t WHERE a!='b';", "{\"k\": [1, 2.5e-3, null]}", "\\begin{equation} x_{i}^{2} \\end{equation}", "$HOME/.bashrc && ls -la | wc -l",
        "a->b::c<d>(e);//f", "=== !== <=> ?? ?.", "#include <stdio.h>\r\n\tint main(){}\r\n", "`code` **bold** _it_ ~~s~~", "https://example.com/a?b=c&d=%20#e",
        "foo_bar_baz fooBarBaz FOO_BAR", "x\u203fy _connector_", "email@example.com", "C:\\Users\\me\\file.txt", "\\n \\t \\u0041", "<0x0A> <0x41>", "[UNK] <unk> <pad>"]
SPECIAL = ["<s>", "</s>", "<s>Hello</s>", "<s> Hello </s> world", "a<s>b", "text <|endoftext|> more", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|><|im_end|>",
           "  <|im_end|>  x", "<|im_star", "<|im_start|", "<<|im_start|>>", "[INST] <<SYS>> x <</SYS>> [/INST]", "<|begin_of_text|><|eot_id|>", "<s><s><s>",
           "</s></s>", "<unk>", "▁<s>", " <s>", "x </s>y", "<S>", "[MASK] a [MASK]", "word[MASK]word", "  [MASK]  ", "[STRIP] a", "a [STRIP]   b", "a   [LEFT]b",
           "wordtok", "a wordtok b", "wordtokx", "xwordtok", "_wordtok_", "-wordtok-", "éwordtok", "wordtok\u0301", "WordTok", "LOWER lower Lower", "lowerlower", "a lower",
           "longtoken longtok long", "longtokenlong", "ﬁxed fixed", "NF\u212b"]
CONTROL = ["\x00", "a\x00b", "\x01\x02", "\x07bell", "\x1b[31mred\x1b[0m", "\x7f", "\x80", "\x9f", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "\u00ad", "\x0b\x0c", "\x1c\x1d\x1e\x1f"]
LONG = ["a" * 300, "ab" * 200, "あ" * 120, "supercalifragilisticexpialidocious" * 12, "0" * 200, "!" * 150, "e\u0301" * 80, "x " * 150, "👍🏽" * 40,
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "=" * 64, "-" * 63 + "|", "https://" + "a/" * 90]
TEXT = ["Hello world", " Hello", "Hello  World!!", "The quick brown fox jumps over the lazy dog.", "Mixed CASE text, with (brackets) & symbols: $5.00 @ 50%!",
        "“Smart quotes” — and dashes – … ellipsis", "ALL CAPS SENTENCE", "1st 2nd 3rd", "e.g. i.e. etc.", "¿Qué? ¡Sí!", "naïve café résumé", "A.B.C.", "…", "¹²³", "€£¥", "©®",
        "Führer nещо на Български", "🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ 🦙🦙 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3"]


def any_character(rng):
    """Any code point that Unicode 14 assigns: the property tables of the libraries differ on later ones."""
    while True:
        c = chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x20, 0xD800), rng.randrange(0xE000, 0x20000)]))
        if ucd.category(c) != "Cn":
            return c


def hard_strings():
    """At least 300 different strings, always the same."""
    strings = EMOJI + COMBINING + SCRIPTS + SPACES + DIGITS + CONTRACTIONS + CODE + SPECIAL + CONTROL + LONG + TEXT
    rng = random.Random(7)
    atoms = [s for s in strings if 0 < len(s) < 40]
    for _ in range(120):
        strings.append("".join(rng.choice(atoms) + rng.choice(["", "", " ", "\n", "  "]) for _ in range(rng.randint(2, 7))))
    for _ in range(60):
        strings.append("".join(any_character(rng) for _ in range(rng.randint(1, 12))))
    return list(dict.fromkeys(strings))


if __name__ == "__main__":
    print(len(hard_strings()))
