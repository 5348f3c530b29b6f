"""The tokenizers that the comparison and the goldens are made with, each in a folder of its own."""

import json
import shutil

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from hard_strings import hard_strings

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")


VOCAB_SIZE = 1200  # of the tokenizers trained here; the goldens use fewer


def corpus():
    """Text to train on: the hard strings' first half, so that the others hold what no vocabulary has seen."""
    strings = hard_strings()
    return strings[:220] * 3 + ["the user said hello to the world and the world said hello to the user"] * 20


def added(normalized_too=True):
    tokens = [AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True, rstrip=True),
              AddedToken("<|endoftext|>", special=True), AddedToken("[MASK]", special=True, lstrip=True),
              AddedToken("[STRIP]", lstrip=True, rstrip=True, normalized=False), AddedToken("[LEFT]", lstrip=True),
              AddedToken("wordtok", single_word=True), AddedToken("longtok", normalized=False), AddedToken("longtoken", normalized=False)]
    if normalized_too:
        tokens += [AddedToken("LOWER", normalized=True), AddedToken("ﬁxed", normalized=True), AddedToken("NFÅ", normalized=True)]
    return tokens


def train(model, trainer, normalizer=None, pre=None, decoder=None, post=None, tokens=True):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(corpus(), trainer)
    if decoder is not None:
        tokenizer.decoder = decoder
    if tokens:
        tokenizer.add_tokens(added())
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def bpe_trainer(**more):
    return trainers.BpeTrainer(vocab_size=VOCAB_SIZE, limit_alphabet=VOCAB_SIZE // 3, show_progress=False, **more)


def byte_trainer():
    return bpe_trainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def with_bos(tokenizer):
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>:1 <|endoftext|>:1", pair="$A $B",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")])])


def split_bytes(pattern, **more):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", **more),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_fallback_vocab(tokenizer):
    """A trained BPE with sentencepiece's byte tokens put in front of its vocabulary."""
    state = json.loads(tokenizer.to_str())
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    known = [t for t, _ in sorted(state["model"]["vocab"].items(), key=lambda x: x[1]) if t not in names]
    # Rare characters are dropped, so that there is something to fall back for.
    rare = {t for t in known if len(t) == 1 and ord(t) > 0x250 and t != "▁"}
    kept = [t for t in known if not any(c in rare for c in t)]
    state["model"]["vocab"] = {t: i for i, t in enumerate(names + kept)}
    merges = [m if isinstance(m, list) else m.split(" ") for m in state["model"]["merges"]]
    state["model"]["merges"] = [m for m in merges if not any(c in rare for c in "".join(m))]
    state["model"].update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    state["added_tokens"] = []
    return state


def trained_json_kinds():
    yield "gpt2-like", train(models.BPE(), byte_trainer(), None, pre_tokenizers.ByteLevel(add_prefix_space=False),
                             decoders.ByteLevel(), lambda t: processors.ByteLevel())
    yield "prefix-space", train(models.BPE(), byte_trainer(), None, pre_tokenizers.ByteLevel(add_prefix_space=True),
                                decoders.ByteLevel())
    llama3 = train(models.BPE(), byte_trainer(), None, split_bytes(GPT4), decoders.ByteLevel(), with_bos)
    yield "llama3-like", llama3
    state = json.loads(llama3.to_str())
    state["model"]["ignore_merges"] = True
    # Words that only ignore_merges can give, as their parts have no merge.
    for word in ("Ġworld!", "supercali", "Ġqwxz", "123"):
        state["model"]["vocab"].setdefault(word, 0)
    order = sorted((t for t in state["model"]["vocab"]), key=lambda t: (state["model"]["vocab"][t], t))
    state["model"]["vocab"] = {t: i for i, t in enumerate(order)}
    state["added_tokens"], state["post_processor"] = [], None
    yield "llama3-ignore-merges", state
    yield "qwen2-like", train(models.BPE(), byte_trainer(), normalizers.NFC(), split_bytes(GPT4.replace("{1,3}", "")),
                              decoders.ByteLevel(), lambda t: processors.ByteLevel(trim_offsets=False))
    yield "gpt4o-like", train(models.BPE(), byte_trainer(), None, split_bytes(GPT4O), decoders.ByteLevel())
    yield "deepseek-like", train(models.BPE(), byte_trainer(), None, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        split_bytes(DEEPSEEK)]), decoders.ByteLevel())
    spm = train(models.BPE(unk_token="<unk>", fuse_unk=True), bpe_trainer(special_tokens=["<unk>", "<s>", "</s>"]),
                normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, None, None, False)
    state = byte_fallback_vocab(spm)
    state["decoder"] = json.loads(Tokenizer.from_str(json.dumps({**state, "decoder": None})).to_str())["decoder"]
    state["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    state["added_tokens"] = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": n,
                              "special": True} for i, (c, n) in enumerate([("<unk>", True), ("<s>", False), ("</s>", True)])]
    state["post_processor"] = json.loads(json.dumps({"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}))
    yield "llama2-like", state
    legacy = json.loads(json.dumps(state))
    legacy["model"]["merges"] = [" ".join(m) for m in state["model"]["merges"]]
    legacy["model"].update(byte_fallback=False, fuse_unk=False)
    yield "llama2-like-no-fallback", legacy
    fused = json.loads(json.dumps(legacy))
    fused["model"].update(fuse_unk=True)
    yield "llama2-like-fused-unk", fused
    some_bytes = json.loads(json.dumps(state))
    for b in range(0x80, 0xC8):  # byte tokens for some characters only: unk and bytes side by side
        name = f"<0x{b:02X}>"
        some_bytes["model"]["vocab"][f"<gone{b}>"] = some_bytes["model"]["vocab"].pop(name)
    yield "llama2-like-some-bytes", some_bytes
    first = json.loads(json.dumps(state))
    first["normalizer"] = None
    first["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    yield "llama2-metaspace-first", first
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            meta = dict(replacement="▁", prepend_scheme=scheme, split=split)
            yield f"metaspace-{scheme}-{'split' if split else 'whole'}", train(
                models.BPE(unk_token="<unk>"), bpe_trainer(special_tokens=["<unk>"]), None, pre_tokenizers.Metaspace(**meta),
                decoders.Metaspace(**meta))
    for form, normal in (("nfc", normalizers.NFC()), ("nfkc", normalizers.NFKC()), ("nfd", normalizers.NFD()), ("nfkd", normalizers.NFKD()),
                         ("lower", normalizers.Lowercase()), ("strip", normalizers.Strip()), ("lstrip", normalizers.Strip(right=False)),
                         ("rstrip", normalizers.Strip(left=False)), ("replace-regex", normalizers.Replace(Regex(r"\s+"), " ")),
                         ("replace-nothing", normalizers.Replace("a", "")),
                         ("lower-nfkc-strip", normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]))):
        yield f"normalizer-{form}", train(models.BPE(unk_token="<unk>"), bpe_trainer(special_tokens=["<unk>"]), normal,
                                          pre_tokenizers.Metaspace(prepend_scheme="first"), decoders.Metaspace(prepend_scheme="first"))
    for name, pre in (("digits", pre_tokenizers.Digits()), ("digits-each", pre_tokenizers.Digits(individual_digits=True)),
                      ("punctuation", pre_tokenizers.Punctuation()), ("punctuation-contiguous", pre_tokenizers.Punctuation("contiguous")),
                      ("whitespace", pre_tokenizers.Whitespace()), ("whitespace-split", pre_tokenizers.WhitespaceSplit()),
                      ("word-boundary", pre_tokenizers.Split(Regex(r"\b"), "isolated")),
                      ("numbers-by-three", pre_tokenizers.Split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated")),
                      ("posix-brackets", pre_tokenizers.Split(Regex(r"[[:punct:]]+|[[:upper:][:digit:]]|[^[:space:][:alpha:]]+"), "isolated")),
                      ("words", pre_tokenizers.Split(Regex(r"[\w.]+|\h"), "removed", invert=True)),
                      ("lines", pre_tokenizers.Split(Regex(r"^.|(?m:..)$|[^\S\n]"), "isolated")),
                      ("empty-matches", pre_tokenizers.Split(Regex(r"x*"), "merged_with_previous")),
                      ("sequence", pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
                                                            pre_tokenizers.Digits(True), pre_tokenizers.Metaspace()]))):
        yield f"pre-{name}", train(models.BPE(unk_token="<unk>"), bpe_trainer(special_tokens=["<unk>"]), None, pre)
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            name = f"split-{behavior}{'-inverted' if invert else ''}"
            yield name, train(models.BPE(unk_token="<unk>"), bpe_trainer(special_tokens=["<unk>"]), None,
                              pre_tokenizers.Split(Regex(r"[\s\d]"), behavior, invert))
        yield f"split-literal-{behavior}", train(models.BPE(unk_token="<unk>"), bpe_trainer(special_tokens=["<unk>"]), None,
                                                 pre_tokenizers.Split(" ", behavior))
    unigram_trainer = trainers.UnigramTrainer(vocab_size=600, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"])
    for split in (True, False):
        meta = dict(replacement="▁", prepend_scheme="always", split=split)
        yield f"unigram-{'split' if split else 'whole'}", train(models.Unigram(), unigram_trainer, normalizers.NFKC(),
                                                                pre_tokenizers.Metaspace(**meta), decoders.Metaspace(**meta))
    state = json.loads(train(models.Unigram(), unigram_trainer, None, pre_tokenizers.Metaspace(), decoders.Metaspace(), None, False).to_str())
    vocab = [v for v in state["model"]["vocab"] if not any(ord(c) > 0x250 and c != "▁" for c in v[0])]
    state["model"]["vocab"] = vocab + [[f"<0x{b:02X}>", -30.0] for b in range(256)]
    state["model"]["byte_fallback"] = True
    state["added_tokens"] = []
    state["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁",
                                                                                    "prepend_scheme": "always", "split": True}]}
    yield "unigram-byte-fallback", state


def gpt2_state(folder):
    """tokenizer.json of GPT-2 from its vocab.json and merges.txt."""
    merges = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [m for m in merges if m and not m.startswith("#version")]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    token = {"id": vocab["<|endoftext|>"], "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": True, "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [token], "normalizer": None, "pre_tokenizer": level,
            "post_processor": level, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges}}


def round_scores(text):
    """Scores of few digits: the package reads longer ones a bit off, which decides between equal cuts."""
    state = json.loads(text)
    if state["model"]["type"] == "Unigram":
        state["model"]["vocab"] = [[t, round(s, 6)] for t, s in state["model"]["vocab"]]
    return json.dumps(state)


def json_kinds(root, data, only=lambda name: True):
    """(name, folder, `tokenizers` object) for every tokenizer.json."""
    found = list(trained_json_kinds())
    if data is not None:
        found.append(("real-gpt2", gpt2_state(data / "tokenizers/gpt2")))
        for name, path in (("real-llama2", "tokenizers/llama2/tokenizer.json"), ("real-torchtune", "torchtune/tokenizer.json"),
                           ("real-tiny-bpe", "torchtune/tiny_bpe_tokenizer.json"), ("real-gemma-cropped", "torchtune/tokenizer_gemma_cropped.json")):
            found.append((name, json.loads((data / path).read_text(encoding="utf-8"))))
    for name, made in found:
        if not only(name):
            continue
        folder = root / name
        folder.mkdir()
        text = made.to_str() if isinstance(made, Tokenizer) else json.dumps(made)
        if '"Unigram"' in text:
            text = round_scores(text)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        yield name, folder, Tokenizer.from_str(text)


def sentencepiece_kinds(root, data):
    """(name, folder) for every tokenizer.model."""
    import sentencepiece

    corpus_file = root / "corpus.txt"
    lines = [s for s in corpus() if s.strip() and "\x00" not in s and "\n" not in s]
    corpus_file.write_text("\n".join(lines), encoding="utf-8")
    for model_type in ("bpe", "unigram"):
        for name, more in (("fallback", dict(byte_fallback=True, split_digits=True)), ("plain", {}),
                           ("identity", dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True)),
                           ("no-prefix", dict(add_dummy_prefix=False)), ("symbols", dict(user_defined_symbols=["<|im_start|>", "foo"],
                                                                                       control_symbols=["<ctl>"])),
                           ("suffix", dict(treat_whitespace_as_suffix=True))):
            folder = root / f"sp-{model_type}-{name}"
            folder.mkdir()
            sentencepiece.SentencePieceTrainer.train(input=str(corpus_file), model_prefix=str(folder / "tokenizer"), vocab_size=900,
                                                     model_type=model_type, hard_vocab_limit=False, character_coverage=0.98,
                                                     minloglevel=2, **more)
            yield folder.name, folder
    if data is not None:
        for name, path in (("sp-real-llama2", "tokenizers/llama2/tokenizer.model"), ("sp-real-m", "torchtune/m.model"),
                           ("sp-real-unigram", "torchtune/sentencepiece.model")):
            folder = root / name
            folder.mkdir()
            shutil.copy(data / path, folder / "tokenizer.model")
            yield name, folder
