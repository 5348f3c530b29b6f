#include "support/fake_tokenizer.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "text/added_tokens.h"

namespace lorikeet::test {
namespace {

constexpr text::TokenId kFirstSpecial = 256;

std::vector<std::string> specials_of(const FakeTokenizerOptions& options) {
  std::vector<std::string> specials{"<s>", "</s>"};
  if (options.chat_tokens) {
    for (const char* token :
         {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"})
      specials.emplace_back(token);
  }
  return specials;
}

std::string fingerprint_of(const FakeTokenizerOptions& options) {
  return sha256_hex(join(specials_of(options), " ") + (options.dummy_prefix ? "prefix" : ""));
}

class FakeTokenizer : public text::Tokenizer {
 public:
  explicit FakeTokenizer(const FakeTokenizerOptions& options)
      : Tokenizer({.main = options.chat_template,
                   .with_tools = options.tool_template,
                   .tokens = {{"bos_token", options.bos_token}, {"eos_token", "</s>"}}},
                  "one id a byte", fingerprint_of(options)),
        options_(options),
        specials_(specials_of(options)) {
    vocab_size_ = kFirstSpecial + specials_.size();
    if (options.bos) bos_ = id_of(options.bos_token);
    if (options.eos) eos_ = id_of("</s>");
    for (std::size_t i = 0; i < specials_.size(); ++i) {
      text::AddedToken token;
      token.id = kFirstSpecial + static_cast<text::TokenId>(i);
      token.content = specials_[i];
      token.special = true;
      matcher_.add(specials_[i], token);
    }
  }

  std::vector<text::TokenId> encode(std::string_view text,
                                    const text::EncodeOptions& options) const override {
    if (!is_utf8(text)) throw Error("[fake] not UTF-8");
    std::vector<text::TokenId> ids;
    if (options.add_special_tokens && bos_id()) ids.push_back(*bos_id());
    for (const text::TextSegment& segment : split_at_added(text, options)) {
      if (segment.id) {
        ids.push_back(*segment.id);
        continue;
      }
      const auto between = encode_between(text.substr(segment.begin, segment.end - segment.begin),
                                          segment.begin == 0, options);
      ids.insert(ids.end(), between.begin(), between.end());
    }
    return ids;
  }

  std::vector<text::TextSegment> split_at_added(std::string_view text,
                                                const text::EncodeOptions& options) const override {
    return matcher_.split(text, options.parse_special, options.literal);
  }

  std::vector<text::TokenId> encode_between(std::string_view text, bool /*at_start*/,
                                            const text::EncodeOptions& /*options*/) const override {
    std::vector<text::TokenId> ids;
    if (!text.empty() && options_.dummy_prefix) ids.push_back(' ');
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  std::string decode(std::span<const text::TokenId> ids, bool skip_special) const override {
    std::string out;
    for (const text::TokenId id : ids)
      if (!skip_special || !is_special(id)) out += token_of(id);
    std::string valid;  // cut sequences become U+FFFD
    for (std::string_view rest = out; !rest.empty();) {
      const std::size_t bad = std::min(find_invalid_utf8(rest), rest.size());
      valid += rest.substr(0, bad);
      rest.remove_prefix(bad);
      if (rest.empty()) break;
      valid += "\uFFFD";
      rest.remove_prefix(1);
    }
    return valid;
  }

  std::optional<text::TokenId> id_of(std::string_view token) const override {
    const auto found = std::find(specials_.begin(), specials_.end(), token);
    if (found != specials_.end())
      return kFirstSpecial + static_cast<text::TokenId>(found - specials_.begin());
    if (token.size() == 1) return static_cast<unsigned char>(token[0]);
    return std::nullopt;
  }
  std::string token_of(text::TokenId id) const override {
    if (id < 0 || static_cast<std::size_t>(id) >= vocab_size()) throw Error("[fake] no such id");
    if (id < kFirstSpecial) return std::string(1, static_cast<char>(id));
    return specials_[static_cast<std::size_t>(id - kFirstSpecial)];
  }
  bool is_special(text::TokenId id) const override { return id >= kFirstSpecial; }

 private:
  FakeTokenizerOptions options_;
  std::vector<std::string> specials_;
  text::AddedTokenMatcher matcher_;
};

}  // namespace

std::shared_ptr<const text::Tokenizer> fake_tokenizer(const FakeTokenizerOptions& options) {
  return std::make_shared<FakeTokenizer>(options);
}

}  // namespace lorikeet::test
