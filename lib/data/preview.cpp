#include "data/preview.h"

#include <algorithm>
#include <array>

#include "base/counted.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD, how a cut character is decoded
constexpr std::size_t kContext = 4;                        // tokens before, so that word-initial blanks show
constexpr std::size_t kLongestCharacter = 4;               // a character has at most 4 bytes, so 4 tokens

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : escape_control(text)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out;
}

// Models may have more embedding rows than the tokenizer has tokens.
bool is_known(text::TokenId id, const text::Tokenizer& tokenizer) {
  return static_cast<std::size_t>(id) < tokenizer.vocab_size();
}

// Tokens that are shown by themselves, between texts.
bool stands_alone(text::TokenId id, const text::Tokenizer& tokenizer) {
  return !is_known(id, tokenizer) || tokenizer.is_special(id);
}

// Tokens that are not trained on keep the terminal's own colour, every other one dimmed: a grey of ours would
// vanish on a light background or on a dark one.
std::string_view colour(bool trained, bool odd) {
  if (trained) return odd ? "\x1b[30;46m" : "\x1b[30;42m";
  return odd ? "\x1b[2m" : "\x1b[0m";
}

}  // namespace

std::vector<std::string> token_texts(std::span<const text::TokenId> ids, const text::Tokenizer& tokenizer) {
  std::vector<std::string> texts(ids.size());
  std::size_t text_begin = 0;  // behind the last control token: decoding starts anew there
  for (std::size_t begin = 0; begin < ids.size();) {
    if (stands_alone(ids[begin], tokenizer)) {
      texts[begin] = is_known(ids[begin], tokenizer) ? tokenizer.token_of(ids[begin])
                                                     : "<id " + std::to_string(ids[begin]) + ">";
      text_begin = ++begin;
      continue;
    }
    const std::size_t context = std::max(text_begin, begin - std::min(begin, kContext));
    const std::string before = tokenizer.decode(ids.subspan(context, begin - context), false);
    std::size_t end = begin + 1;
    std::string text;
    while (true) {
      text = tokenizer.decode(ids.subspan(context, end - context), false);
      const bool more =
          end < ids.size() && end - begin < kLongestCharacter && !stands_alone(ids[end], tokenizer);
      if (!text.ends_with(kReplacement) || !more) break;
      ++end;
    }
    const bool whole = text.find(kReplacement, before.size()) == std::string::npos;
    if (!whole && end > begin + 1) {  // bytes that never become a character
      end = begin + 1;
      text = tokenizer.decode(ids.subspan(context, end - context), false);
    }
    texts[end - 1] = text.starts_with(before) ? text.substr(before.size()) : tokenizer.token_of(ids[end - 1]);
    begin = end;
  }
  return texts;
}

std::string preview_example(const TokenDataset& dataset, std::size_t i, const text::Tokenizer& tokenizer,
                            const PreviewOptions& options) {
  const auto labels = dataset.labels(i);
  const std::size_t shown = std::min<std::size_t>(labels.size(), options.max_tokens);
  const std::vector<std::string> texts = token_texts(dataset.ids(i).first(shown), tokenizer);
  std::string out = "example " + std::to_string(i) + ", " + dataset.source_places({&i, 1}) + ": " +
                    counted(labels.size(), "token") + ", " + std::to_string(dataset.label_count(i)) +
                    " trained on\n";
  for (std::size_t t = 0; t < shown; ++t) {
    // The first token is never a target, whatever its label.
    const auto is_target = [&](std::size_t k) { return k > 0 && labels[k] != kNoLabel; };
    const bool trained = is_target(t);
    const bool run_begins = t == 0 || is_target(t - 1) != trained;
    if (run_begins) out += std::string(t == 0 ? "" : "\n") + (trained ? "+ " : "- ");
    if (options.colour) {
      out += std::string(colour(trained, t % 2 == 1)) + one_line(texts[t]) + "\x1b[0m";
    } else {
      out += (run_begins ? "" : "|") + one_line(texts[t]);
    }
  }
  out += '\n';
  if (shown < labels.size()) out += "... and " + counted(labels.size() - shown, "token") + " more\n";
  return out;
}

}  // namespace lorikeet::data
