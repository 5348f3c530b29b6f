#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "bench/evaluation.h"

namespace lorikeet::bench {

/// What a benchmark found, for people and programs.
struct Report {
  std::string title;
  std::string command;  ///< that made it
  std::vector<std::string> facts;
  std::int64_t warmup_steps = 0;
  std::vector<Group> groups;
  Evaluation evaluation;
  std::string verdict;
};

/// The table with aligned columns, the notes and the verdict.
std::string report_text(const Report& report);

/// The same as Markdown.
std::string report_markdown(const Report& report);

/// The same as JSON, with every run's own figures. What isn't known is null.
Json report_json(const Report& report);

}  // namespace lorikeet::bench
