#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace lorikeet::text {

/// One step from token spellings back to text ("decoder" of a tokenizer.json). The text is the concatenation
/// of what the last step leaves.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// The "decoder" object: ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip; nullptr for
/// null. Throws Error naming any other.
std::unique_ptr<Decoder> make_decoder(const JsonView& json);

}  // namespace lorikeet::text
