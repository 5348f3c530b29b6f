#include "text/pre_tokenizer.h"

#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/prepend_scheme.h"
#include "text/regex_syntax.h"
#include "text/unicode.h"

namespace lorikeet::text {
namespace {

/// Steps that cut at matches and rewrite nothing.
class Splitter : public PreTokenizer {
 public:
  explicit Splitter(SplitBehavior behavior) : behavior_(behavior) {}

  void apply(Pieces& pieces) const final {
    pieces.next.clear();
    std::vector<Span> spans;
    for (const Piece& piece : pieces.list) {
      spans.clear();
      find_spans(piece.text, spans);
      cut(piece, spans, behavior_, pieces.next);
    }
    pieces.list.swap(pieces.next);
  }

 protected:
  virtual void find_spans(std::string_view text, std::vector<Span>& spans) const = 0;

 private:
  SplitBehavior behavior_;
};

class PatternSplit final : public Splitter {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : Splitter(behavior), pattern_(std::move(pattern)), invert_(invert) {}

  void find_spans(std::string_view text, std::vector<Span>& spans) const override {
    collect_spans(text, invert_, spans, [&](auto&& visit) { pattern_.for_each_match(text, visit); });
  }

 private:
  Pattern pattern_;
  bool invert_;
};

/// Each character with a property is a match.
class CharacterSplit final : public Splitter {
 public:
  CharacterSplit(bool (*is_match)(char32_t), SplitBehavior behavior)
      : Splitter(behavior), is_match_(is_match) {}

  void find_spans(std::string_view text, std::vector<Span>& spans) const override {
    collect_spans(text, false, spans, [&](auto&& visit) {
      std::size_t at = 0;
      while (at < text.size()) {
        const std::size_t begin = at;
        if (is_match_(next_code_point(text, at))) visit(begin, at);
      }
    });
  }

 private:
  bool (*is_match_)(char32_t);
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, bool keep_bytes, const std::string& where)
      : add_prefix_space_(add_prefix_space), keep_bytes_(keep_bytes) {
    if (use_regex) pattern_.emplace(Regex::from_oniguruma(kGpt2Pattern, where));
  }

  void apply(Pieces& pieces) const override {
    if (add_prefix_space_) {
      for (Piece& piece : pieces.list) {
        if (!piece.text.starts_with(' ')) {
          piece.text = pieces.storage.emplace_back(" " + std::string(piece.text));
        }
      }
    }
    if (pattern_) {
      pieces.next.clear();
      std::vector<Span> spans;
      for (const Piece& piece : pieces.list) {
        spans.clear();
        collect_spans(piece.text, false, spans,
                      [&](auto&& visit) { pattern_->for_each_match(piece.text, visit); });
        cut(piece, spans, SplitBehavior::kIsolated, pieces.next);
      }
      pieces.list.swap(pieces.next);
    }
    if (keep_bytes_) return;
    for (Piece& piece : pieces.list) piece.text = pieces.storage.emplace_back(bytes_to_chars(piece.text));
  }

 private:
  bool add_prefix_space_;
  bool keep_bytes_;
  std::optional<Regex> pattern_;
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void apply(Pieces& pieces) const override {
    pieces.next.clear();
    std::vector<Span> spans;
    for (const Piece& piece : pieces.list) {
      const Piece marked{pieces.storage.emplace_back(mark(piece)), piece.at_start};
      if (!split_) {
        pieces.next.push_back(marked);
        continue;
      }
      spans.clear();
      collect_spans(marked.text, false, spans, [&](auto&& visit) {
        std::size_t at = 0;
        while ((at = marked.text.find(replacement_, at)) != std::string_view::npos) {
          visit(at, at + replacement_.size());
          at += replacement_.size();
        }
      });
      cut(marked, spans, SplitBehavior::kMergedWithNext, pieces.next);
    }
    pieces.list.swap(pieces.next);
  }

 private:
  std::string mark(const Piece& piece) const {
    std::string out;
    out.reserve(piece.text.size() * 3 / 2 + replacement_.size());
    const bool prefix =
        prepend_ == PrependScheme::kAlways || (prepend_ == PrependScheme::kFirst && piece.at_start);
    if (prefix && !piece.text.starts_with(' ') && !piece.text.starts_with(replacement_)) out += replacement_;
    for (const char c : piece.text) {
      if (c == ' ') {
        out += replacement_;
      } else {
        out += c;
      }
    }
    return out;
  }

  std::string replacement_;
  PrependScheme prepend_;
  bool split_;
};

std::unique_ptr<PreTokenizer> make_metaspace(const JsonView& json) {
  const std::string replacement = json.at("replacement").as_string();
  if (replacement.empty() || utf8_length(replacement[0]) != replacement.size()) {
    json.at("replacement").fail("one character");
  }
  return std::make_unique<Metaspace>(replacement, read_prepend_scheme(json), json.get_bool("split", true));
}

void add_steps(const JsonView& json, bool last, bool bytes_allowed, PreTokenizerSteps& out) {
  const std::string& type = json.at("type").as_string();
  if (type == "Sequence") {
    const auto items = json.at("pretokenizers").items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      add_steps(items[i], last && i + 1 == items.size(), bytes_allowed, out);
    }
  } else if (type == "ByteLevel") {
    out.yields_bytes = last && bytes_allowed;
    out.steps.push_back(std::make_unique<ByteLevel>(json.get_bool("add_prefix_space", true),
                                                    json.get_bool("use_regex", true), out.yields_bytes,
                                                    json.where()));
  } else if (type == "Split") {
    out.steps.push_back(std::make_unique<PatternSplit>(read_pattern(json.at("pattern")),
                                                       read_split_behavior(json.at("behavior")),
                                                       json.get_bool("invert", false)));
  } else if (type == "Metaspace") {
    out.steps.push_back(make_metaspace(json));
  } else if (type == "Digits") {
    const bool individual = json.get_bool("individual_digits", false);
    out.steps.push_back(std::make_unique<CharacterSplit>(
        &is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Punctuation") {
    const auto behavior = json.maybe("behavior");
    out.steps.push_back(std::make_unique<CharacterSplit>(
        &is_punctuation, behavior ? read_split_behavior(*behavior) : SplitBehavior::kIsolated));
  } else if (type == "WhitespaceSplit") {
    out.steps.push_back(std::make_unique<CharacterSplit>(&is_whitespace, SplitBehavior::kRemoved));
  } else if (type == "Whitespace") {
    // \w+|[^\w\s]+ by Rust's regex, whose \w has the two joiners too.
    const std::string word = std::string(kWordClass) + R"(\x{200c}\x{200d})";
    const std::string rest = word + R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029})" +
                             R"(\x{202f}\x{205f}\x{3000})";
    out.steps.push_back(std::make_unique<PatternSplit>(
        Pattern(Regex("[" + word + "]+|[^" + rest + "]+", json.where())), SplitBehavior::kRemoved, true));
  } else {
    throw Error("[" + json.where() + "] pre-tokenizer of type '" + escape_control(type) +
                "' is not supported; expected ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, "
                "Whitespace or WhitespaceSplit");
  }
}

}  // namespace

PreTokenizerSteps make_pre_tokenizer(const JsonView& json, bool bytes_allowed) {
  PreTokenizerSteps out;
  if (!json.json().is_null()) add_steps(json, true, bytes_allowed, out);
  return out;
}

}  // namespace lorikeet::text
