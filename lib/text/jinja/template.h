#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace lorikeet::text::jinja {

struct Ast;

struct RenderOptions {
  Limits limits{};
  std::string date = "2024-07-26";  ///< what strftime_now writes, at noon: the same tokens on every day
};

/// Throws Error if `date` is no day in the form 2024-07-26.
void require_date(const std::string& date);

/// A chat template in Jinja, as transformers sets Jinja up: trim_blocks, lstrip_blocks, loop controls,
/// {% generation %}, tojson without HTML escapes, raise_exception, strftime_now, an immutable sandbox. Parsed
/// once, rendered any number of times, by any number of threads.
class Template {
 public:
  /// Throws Error naming line and column for syntax that isn't Jinja's or isn't supported.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// The text, with the origin of each byte. Throws Error naming line and column for what fails while it
  /// runs.
  MarkedText render(const std::vector<std::pair<std::string, Value>>& variables,
                    const RenderOptions& options = {}) const;

  /// True if it marks what the model is to say by {% generation %} blocks.
  bool has_generation() const;

 private:
  std::unique_ptr<const Ast> ast_;
};

}  // namespace lorikeet::text::jinja
