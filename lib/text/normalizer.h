#pragma once

#include <memory>
#include <string>

#include "base/json.h"

namespace lorikeet::text {

/// Text on its way through normalisation.
struct NormalText {
  std::string text;
  /// The first character left comes from the first of the whole text.
  bool at_start;
};

/// One rewriting of text before it is split ("normalizer" of a tokenizer.json).
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text) const = 0;
};

/// The "normalizer" object: Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip; nullptr for
/// null. Throws Error naming any other.
std::unique_ptr<Normalizer> make_normalizer(const JsonView& json);

}  // namespace lorikeet::text
