#include "text/chat_encode.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace lorikeet::text {
namespace {

constexpr EncodeOptions kBare{.add_special_tokens = false, .parse_special = false};

bool starts_with(std::span<const TokenId> ids, std::span<const TokenId> prefix) {
  return ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
}

}  // namespace

SegmentEncoder::SegmentEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  constexpr std::string_view kProbe = "x";
  const std::vector<TokenId> alone = plain(kProbe);
  prefix_after_text_ = alone != continued(kProbe);
  if (!prefix_after_text_ || !tokenizer.eos_id()) return;
  // Alone, then the control token, then either the same again or what continues a text.
  std::vector<TokenId> expected = alone;
  expected.push_back(*tokenizer.eos_id());
  const std::vector<TokenId> bare = continued(kProbe);
  expected.insert(expected.end(), bare.begin(), bare.end());
  const std::string text =
      std::string(kProbe) + tokenizer.token_of(*tokenizer.eos_id()) + std::string(kProbe);
  prefix_after_control_ =
      tokenizer.encode(text, {.add_special_tokens = false, .parse_special = true}) != expected;
}

std::vector<TokenId> SegmentEncoder::plain(std::string_view text) const {
  return tokenizer_.encode(text, kBare);
}

// The ids of `text` as they are after other text: encoded behind an anchor whose own ids are then dropped.
// The anchors are characters that vocabularies rarely merge with what follows; where one does merge, the next
// serves.
std::vector<TokenId> SegmentEncoder::continued(std::string_view text) const {
  static constexpr std::array<std::string_view, 3> kAnchors{"\n", "]", "."};
  for (const std::string_view anchor : kAnchors) {
    const std::vector<TokenId> head = plain(anchor);
    std::vector<TokenId> ids = plain(std::string(anchor) + std::string(text));
    if (!starts_with(ids, head)) continue;
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(head.size()));
    return ids;
  }
  return plain(text);
}

TokenId SegmentEncoder::control_id(const Segment& segment) const {
  if (segment.kind == Segment::Kind::kEos) {
    if (const auto id = tokenizer_.eos_id()) return *id;
    throw Error(
        "[chat_template] expected the tokenizer to name an EOS token, it names none; "
        "set eos_token in tokenizer_config.json, or choose a template with its own end of turn");
  }
  if (const auto id = tokenizer_.id_of(segment.text)) return *id;
  throw Error("[chat_template] expected the token '" + segment.text +
              "' in the tokenizer, which doesn't have it; choose another data.chat_template, or add it by "
              "model.add_special_tokens");
}

EncodedPrompt SegmentEncoder::encode(std::span<const Segment> segments) const {
  using Kind = Segment::Kind;
  EncodedPrompt out;
  const auto append = [&](std::span<const TokenId> ids, bool trained) {
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.trained.insert(out.trained.end(), ids.size(), trained ? 1 : 0);
  };
  enum class After { kStart, kText, kControl } after = After::kStart;
  for (std::size_t i = 0; i < segments.size();) {
    const Segment& segment = segments[i];
    if (segment.kind == Kind::kText) {
      std::string run;
      for (; i < segments.size() && segments[i].kind == Kind::kText && segments[i].trained == segment.trained;
           ++i)
        run += segments[i].text;
      const bool bare = after == After::kText || (after == After::kControl && !prefix_after_control_);
      append(prefix_after_text_ && bare ? continued(run) : plain(run), segment.trained);
      after = After::kText;
      continue;
    }
    ++i;
    // A BOS begins a text anew, as it does where a tokenizer adds it by itself.
    after = segment.kind == Kind::kBos ? After::kStart : After::kControl;
    if (segment.kind != Kind::kBos) {
      const TokenId id = control_id(segment);
      append({&id, 1}, segment.trained);
    } else if (const auto bos = tokenizer_.bos_id()) {
      // ChatML checkpoints may name <|im_start|> their BOS: the turn's own token is then the only one.
      const bool doubled = i < segments.size() && segments[i].kind == Kind::kToken &&
                           tokenizer_.id_of(segments[i].text) == bos;
      if (!doubled) append({&*bos, 1}, segment.trained);
    }
  }
  return out;
}

std::vector<TokenId> SegmentEncoder::encode_document(std::string_view text) const {
  std::vector<TokenId> ids;
  const std::vector<TokenId> body = plain(text);
  ids.reserve(body.size() + 2);
  if (const auto bos = tokenizer_.bos_id()) ids.push_back(*bos);
  ids.insert(ids.end(), body.begin(), body.end());
  if (const auto eos = tokenizer_.eos_id()) ids.push_back(*eos);
  return ids;
}

}  // namespace lorikeet::text
