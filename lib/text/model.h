#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace lorikeet::text {

/// What turns one pre-tokenized piece into ids ("model" of a tokenizer.json). Immutable after loading.
class Model {
 public:
  virtual ~Model() = default;

  /// Appends the ids of `piece` to `out`.
  virtual void tokenize(std::string_view piece, std::vector<TokenId>& out) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  Vocabulary vocabulary_;
};

/// The "model" object of a tokenizer.json: BPE or Unigram.
/// `byte_pieces` tells that pieces will come as raw bytes where the vocabulary is spelt in the byte-level
/// alphabet; allowed only where `can_take_bytes`.
std::unique_ptr<Model> make_model(const JsonView& json, bool byte_pieces);

/// True if the model is one that takes raw bytes: a BPE without byte fallback.
bool can_take_bytes(const JsonView& json);

}  // namespace lorikeet::text
