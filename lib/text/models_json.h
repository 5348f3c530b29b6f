#pragma once

#include <memory>

#include "text/model.h"

namespace lorikeet::text {

/// The readers behind make_model.
std::unique_ptr<Model> make_bpe(const JsonView& json, bool byte_pieces);
std::unique_ptr<Model> make_unigram(const JsonView& json);

}  // namespace lorikeet::text
