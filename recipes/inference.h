#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"

// What the verbs `generate` and `eval` do. With an adapter rows and questions are written with the template
// that it was trained with, see adapter_template.h; which one is used is logged.
namespace lorikeet::recipes {

struct GenerateRequest {
  std::filesystem::path model;
  std::optional<std::filesystem::path> adapter;
  config::Settings settings;                  ///< precision, device, data format and template
  std::vector<std::string> prompts;           ///< questions, or
  std::string system;                         ///< a system prompt before each of them; "" for none
  std::optional<std::filesystem::path> data;  ///< rows of a data file
  std::size_t limit = 0;                      ///< of the rows; 0: all
  std::int64_t max_new_tokens = 256;
  double temperature = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
};

/// Writes each question and the model's answer (and the expected one, where a row has it) to `out`, batch by
/// batch; control characters are escaped when `escape`. Throws Error before the first for a question that is
/// longer than the model allows.
void generate(const GenerateRequest& request, std::ostream& out, bool escape);

struct EvalRequest {
  std::filesystem::path model;
  std::optional<std::filesystem::path> adapter;
  config::Settings settings;
  std::filesystem::path data;
  bool per_token = false;
  bool exact_match = false;
  std::int64_t max_new_tokens = 256;  ///< of an answer, for exact_match
};

/// Writes one JSON line with the loss and perplexity over the file's label tokens; with `exact_match` also
/// the share of rows whose whole greedy answer equals the expected one. With `per_token` first a JSON line a
/// row with its label tokens' ids and negative log-likelihoods. Throws Error (kRunFailed), with nothing
/// written, when the loss is not finite.
void evaluate(const EvalRequest& request, std::ostream& out);

}  // namespace lorikeet::recipes
