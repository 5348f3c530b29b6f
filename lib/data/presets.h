#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/options.h"
#include "data/record_source.h"

// Names for public data sets, so that their files are read without spelling out columns and prompts.
namespace lorikeet::data {

struct PresetInfo {
  std::string name;
  std::string repository;  ///< on the Hub
  std::string help;        ///< what a row becomes
};
const std::vector<PresetInfo>& presets();

/// `options` with format, columns and prompt as its preset says; the columns that `options` gives itself go
/// before the preset's. Throws Error listing the names for an unknown preset. Without one the options as they
/// are.
RowOptions resolve_preset(const RowOptions& options);

/// The rows of `source` in the shape that formats know: by the preset (message trees as conversations, lists
/// of texts as turns), and by the templates `options.prompt` and `options.completion`, which make rows of
/// instruct. `options` are resolved.
std::unique_ptr<RecordSource> reshape_rows(std::unique_ptr<RecordSource> source, const RowOptions& options);

}  // namespace lorikeet::data
