#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// Adds the special tokens around a text's ids ("post_processor" of a tokenizer.json). Only the form for a
/// single text counts here, and offsets, which ByteLevel would trim, are not kept.
class PostProcessor {
 public:
  /// TemplateProcessing, ByteLevel (changes no ids), a Sequence of these with at most one template, or null.
  /// Throws Error naming any other type, or a template's token that has no ids.
  explicit PostProcessor(const JsonView& json);

  /// Throws Error, starting with `where`, if the template adds an id that is not below `vocab_size`.
  void require_ids_below(std::size_t vocab_size, const std::string& where) const;

  /// `ids` as the template places them. Without `add_special_tokens`, the template's own tokens are left out.
  std::vector<TokenId> apply(std::vector<TokenId> ids, bool add_special_tokens) const;

 private:
  struct Part {
    bool is_text;
    std::vector<TokenId> ids;  // of a special token
  };
  void read(const JsonView& json);
  void read_template(const JsonView& json);

  std::vector<Part> parts_;
  bool has_template_ = false;
};

}  // namespace lorikeet::text
