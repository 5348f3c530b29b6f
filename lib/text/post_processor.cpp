#include "text/post_processor.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "text/vocabulary.h"

namespace lorikeet::text {

PostProcessor::PostProcessor(const JsonView& json) {
  if (!json.json().is_null()) read(json);
}

void PostProcessor::read(const JsonView& json) {
  const std::string& type = json.at("type").as_string();
  if (type == "Sequence") {
    for (const JsonView& item : json.at("processors").items()) read(item);
  } else if (type == "TemplateProcessing") {
    if (has_template_) throw Error("[" + json.where() + "] a second TemplateProcessing is not supported");
    has_template_ = true;
    read_template(json);
  } else if (type != "ByteLevel") {
    throw Error("[" + json.where() + "] post-processor of type '" + escape_control(type) +
                "' is not supported; expected ByteLevel, Sequence or TemplateProcessing");
  }
}

void PostProcessor::read_template(const JsonView& json) {
  for (const JsonView& piece : json.at("single").items()) {
    if (const auto sequence = piece.maybe("Sequence")) {
      if (sequence->at("id").as_string() != "A") sequence->at("id").fail("A in a template for a single text");
      parts_.push_back({true, {}});
      continue;
    }
    const JsonView name = piece.at("SpecialToken").at("id");
    const JsonView token = json.at("special_tokens").at(name.as_string());
    Part part{false, {}};
    for (const JsonView& id : token.at("ids").items()) {
      if (id.as_int() < 0 || id.as_int() >= Vocabulary::kIdLimit) id.fail("a token id");
      part.ids.push_back(static_cast<TokenId>(id.as_int()));
    }
    parts_.push_back(std::move(part));
  }
}

void PostProcessor::require_ids_below(std::size_t vocab_size, const std::string& where) const {
  for (const Part& part : parts_) {
    for (const TokenId id : part.ids) {
      if (static_cast<std::size_t>(id) < vocab_size) continue;
      throw Error("[" + where +
                  "] post_processor: expected the template's ids below the vocabulary's size of " +
                  std::to_string(vocab_size) + ", got " + std::to_string(id));
    }
  }
}

std::vector<TokenId> PostProcessor::apply(std::vector<TokenId> ids, bool add_special_tokens) const {
  if (!has_template_) return ids;
  std::vector<TokenId> out;
  out.reserve(ids.size() + parts_.size());
  for (const Part& part : parts_) {
    if (part.is_text) {
      out.insert(out.end(), ids.begin(), ids.end());
    } else if (add_special_tokens) {
      out.insert(out.end(), part.ids.begin(), part.ids.end());
    }
  }
  return out;
}

}  // namespace lorikeet::text
