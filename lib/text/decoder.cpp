#include "text/decoder.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/prepend_scheme.h"
#include "text/unicode.h"

namespace lorikeet::text {
namespace {

std::string concatenate(const std::vector<std::string>& parts) { return join(parts, ""); }

/// "<0xE2>" and its like become bytes; a run of them that is not UTF-8 becomes one U+FFFD a byte.
class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    out.reserve(tokens.size());
    std::string bytes;
    const auto flush = [&] {
      if (is_utf8(bytes)) {
        if (!bytes.empty()) out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += *byte;
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }

 private:
  static std::optional<char> byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    unsigned value = 0;
    const auto result = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
    if (result.ec != std::errc{} || result.ptr != token.data() + 5) return std::nullopt;
    return static_cast<char>(value);
  }
};

/// Characters of the byte-level alphabet become bytes, all in one, because a character may span tokens; a
/// token with other characters stands for itself.
class ByteLevel final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += chars_to_bytes(token).value_or(token);
    tokens.assign(1, to_utf8_lossy(bytes));
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override { tokens.assign(1, concatenate(tokens)); }
};

/// The replacement becomes a space; in the first token it goes, if encoding put one there.
class Metaspace final : public Decoder {
 public:
  Metaspace(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}

  void apply(std::vector<std::string>& tokens) const override {
    const Pattern mark(replacement_);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = mark.replace(tokens[i], i == 0 && prepends_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool prepends_;
};

class Replace final : public Decoder {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = pattern_.replace(token, content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

/// Takes up to `start` and `stop` of one character from the ends of every token.
class Strip final : public Decoder {
 public:
  Strip(std::string content, std::int64_t start, std::int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (std::int64_t i = 0; i < start_ && text.starts_with(content_); ++i) {
        text.remove_prefix(content_.size());
      }
      for (std::int64_t i = 0; i < stop_ && text.ends_with(content_); ++i) {
        text.remove_suffix(content_.size());
      }
      token = std::string(text);
    }
  }

 private:
  std::string content_;
  std::int64_t start_;
  std::int64_t stop_;
};

class Sequence final : public Decoder {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Decoder>> steps) : steps_(std::move(steps)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

std::string one_character(const JsonView& json) {
  const std::string& text = json.as_string();
  if (text.empty() || utf8_length(text[0]) != text.size()) json.fail("one character");
  return text;
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const JsonView& json) {
  if (json.json().is_null()) return nullptr;
  const std::string& type = json.at("type").as_string();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Metaspace") {
    return std::make_unique<Metaspace>(one_character(json.at("replacement")),
                                       read_prepend_scheme(json) != PrependScheme::kNever);
  }
  if (type == "Replace") {
    return std::make_unique<Replace>(read_pattern(json.at("pattern")), json.at("content").as_string());
  }
  if (type == "Strip") {
    return std::make_unique<Strip>(one_character(json.at("content")), json.at("start").as_int(),
                                   json.at("stop").as_int());
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Decoder>> steps;
    for (const JsonView& item : json.at("decoders").items()) {
      if (auto step = make_decoder(item)) steps.push_back(std::move(step));
    }
    return std::make_unique<Sequence>(std::move(steps));
  }
  throw Error("[" + json.where() + "] decoder of type '" + escape_control(type) +
              "' is not supported; expected ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence or "
              "Strip");
}

}  // namespace lorikeet::text
