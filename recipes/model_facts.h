#pragma once

#include <cstdint>
#include <filesystem>

#include "config/settings.h"

namespace lorikeet::recipes {

/// What follows from a model's config.json and a run's settings.
struct ModelFacts {
  std::int64_t parameters = 0;  ///< of the base; a tied table counts once
  /// Of one GPU (compute capability 8.0), that a training step with the settings' adapter and precision needs
  /// at least: with activation checkpointing, a micro-batch being one row of data.max_seq_len tokens, all
  /// trained on.
  std::int64_t least_memory_bytes = 0;
};

/// Reads the config.json `file`; milliseconds.
ModelFacts model_facts(const std::filesystem::path& file, const config::Settings& settings);

}  // namespace lorikeet::recipes
