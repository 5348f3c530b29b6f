#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lorikeet::data {

/// What to do with a row of more than `max_seq_len` tokens.
enum class Overlong : std::uint8_t {
  kTruncate,  ///< keep its first max_seq_len tokens
  kDrop,      ///< leave it out
  kError,     ///< throw
};

/// The parts of the config's `data:` section that decide which tokens a run sees.
struct DataOptions {
  std::filesystem::path train_path;
  /// auto, alpaca, instruct, chat, sharegpt, text or tokens; see format.h for the rows of each.
  std::string format = "auto";
  /// The format's field -> the file's key, for files with other names: {"prompt": "question"}.
  std::map<std::string, std::string> columns;

  /// A file of the same format, or else a fraction of the training rows in [0, 1).
  std::optional<std::filesystem::path> validation_path;
  double validation_fraction = 0.0;

  std::int64_t max_seq_len = 2048;
  Overlong overlong = Overlong::kTruncate;
  bool train_on_prompt = false;        ///< loss on every token instead of the answers alone
  std::string chat_template = "auto";  ///< see text::choose_chat_template

  /// Rows of the model's embedding table, the limit of ids given as tokens; 0: the tokenizer's vocabulary.
  std::int64_t embedding_rows = 0;

  bool use_cache = true;
  /// Where tokenised data is kept; default: default_cache_dir().
  std::optional<std::filesystem::path> cache_dir;
  unsigned threads = 0;     ///< for tokenising; 0: as many as the machine has
  std::uint64_t seed = 42;  ///< chooses the rows of validation_fraction
};

}  // namespace lorikeet::data
