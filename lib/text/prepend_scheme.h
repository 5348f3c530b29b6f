#pragma once

#include "base/json.h"

namespace lorikeet::text {

/// Which pieces of a text Metaspace puts its mark before: all, the first, or none.
enum class PrependScheme { kAlways, kFirst, kNever };

/// Of a tokenizer.json's Metaspace, as pre-tokenizer or decoder. Files from before `prepend_scheme` have
/// `add_prefix_space` instead. Throws Error for other names and where the two contradict each other.
inline PrependScheme read_prepend_scheme(const JsonView& json) {
  const bool prepends = json.get_bool("add_prefix_space", true);
  const auto scheme = json.maybe("prepend_scheme");
  if (!scheme) return prepends ? PrependScheme::kAlways : PrependScheme::kNever;
  const std::string& name = scheme->as_string();
  if (name == "never") return PrependScheme::kNever;
  if (name != "always" && name != "first") scheme->fail("always, first or never");
  // Some versions of the tokenizers library put no mark here, others refuse.
  if (!prepends) json.at("add_prefix_space").fail("true, beside the prepend_scheme '" + name + "'");
  return name == "always" ? PrependScheme::kAlways : PrependScheme::kFirst;
}

}  // namespace lorikeet::text
