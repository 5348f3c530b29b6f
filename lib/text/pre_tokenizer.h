#pragma once

#include <memory>
#include <vector>

#include "text/split.h"

namespace lorikeet::text {

/// One step that cuts text into the pieces a model sees ("pre_tokenizer" of a tokenizer.json).
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  /// Replaces every piece by its parts, in order; empty parts are left out.
  virtual void apply(Pieces& pieces) const = 0;
};

/// The steps in order, and whether the last is ByteLevel without its final rewriting of bytes as characters.
struct PreTokenizerSteps {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  bool yields_bytes = false;
};

/// The "pre_tokenizer" object: ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace,
/// WhitespaceSplit. Throws Error naming any other. With `bytes_allowed`, a ByteLevel at the very end leaves
/// the bytes as they are, for a model that takes them so: rewriting all text would cost more than the rest.
PreTokenizerSteps make_pre_tokenizer(const JsonView& json, bool bytes_allowed);

}  // namespace lorikeet::text
