#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/options.h"

namespace lorikeet::plan {

struct Question {
  std::string question;
  bool answer = false;
  std::string because;  ///< the figures
};

/// What the options come to.
struct Decision {
  std::vector<Question> questions;
  const Option* on_one = nullptr;  ///< the best on one device; nullptr where none fits
  const Option* best = nullptr;    ///< of all; nullptr where none fits
  std::string verdict;             ///< a sentence
};

/// Does it fit on one device? Does the link carry the adapter, the base? Do the most devices of the range
/// beat one? A link carries what it lets a step wait for less than a tenth of its time. `options` must
/// outlive the result and hold all of one `Range`; micro-batches beyond `usual_micro_tokens` are not
/// preferred.
Decision decide(const std::vector<Option>& options, const Machine& machine, const Work& work,
                std::int64_t usual_micro_tokens);

}  // namespace lorikeet::plan
