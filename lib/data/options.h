#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template.h"

namespace lorikeet::data {

/// What to do with a row of more than `max_seq_len` tokens.
enum class Overlong : std::uint8_t {
  kTruncate,  ///< keep its first max_seq_len tokens
  kDrop,      ///< leave it out
  kError,     ///< throw
};

/// How the rows of one source are found and read.
struct RowOptions {
  /// auto, alpaca, instruct, chat, sharegpt, text or tokens; see format.h for the rows of each.
  std::string format = "auto";
  /// The format's field -> the file's key, for files with other names: {"prompt": "question"}.
  std::map<std::string, std::string> columns{};
  /// A public data set's name, which stands for its format, columns and prompt; see presets.h. "" for none.
  std::string preset{};
  /// Templates of the prompt and of the answer over a table's columns, "Translate: {english}"; see
  /// row_text.h.
  std::optional<std::string> prompt{};
  std::optional<std::string> completion{};
  /// Which files of a folder; see find_source_files.
  std::string split{};
  std::optional<std::int64_t> limit{};  ///< only so many rows, the first ones
  /// Rows of fewer or more tokens, before any is cut, are left out.
  std::optional<std::int64_t> min_tokens{};
  std::optional<std::int64_t> max_tokens{};
  bool remove_duplicates = false;  ///< of examples with the same tokens and labels only the first stays
};

/// One of the sources of a mixture.
struct MixtureSource {
  std::filesystem::path path;
  RowOptions rows{};
  double weight = 1.0;  ///< its share of the mixture, in relation to the other sources' weights
};

/// What the shares of a mixture are counted in.
enum class MixBy : std::uint8_t { kExamples, kTokens };

/// How large a mixture is, as Hugging Face's interleave_datasets has it.
enum class StoppingStrategy : std::uint8_t {
  kFirstExhausted,  ///< as large as it can be without taking any example twice
  kAllExhausted,    ///< as large as it must be for every example to be taken; smaller sources are repeated
};

/// The parts of the config's `data:` section that decide which tokens a run sees. Its own RowOptions belong
/// to `train_path`.
struct DataOptions : RowOptions {
  std::filesystem::path train_path;
  /// Several sources instead of train_path; they are put end to end where `weighted` is false.
  std::vector<MixtureSource> sources;
  bool weighted = false;
  MixBy mix_by = MixBy::kExamples;
  StoppingStrategy stopping_strategy = StoppingStrategy::kFirstExhausted;

  /// A source of the same format (of a mixture: of a format that is found), or else a fraction of the
  /// training rows in [0, 1).
  std::optional<std::filesystem::path> validation_path;
  std::string validation_split;  ///< which files of a folder; "" as for find_source_files
  double validation_fraction = 0.0;

  std::int64_t max_seq_len = 2048;
  Overlong overlong = Overlong::kTruncate;
  text::TrainOn train_on = text::TrainOn::kRoles;
  std::string chat_template = "auto";        ///< see text::choose_chat_template
  std::string template_date = "2024-07-26";  ///< what a template in Jinja takes for today

  /// Rows of the model's embedding table, the limit of ids given as tokens; 0: the tokenizer's vocabulary.
  std::int64_t embedding_rows = 0;

  bool use_cache = true;
  /// Where tokenised data is kept; default: default_cache_dir().
  std::optional<std::filesystem::path> cache_dir;
  /// Tokens that take more memory than this go to disk while they are made: into the cache folder, or without
  /// a cache into a file without a name in the system's folder for temporary files (TMPDIR).
  std::size_t most_memory_bytes = std::size_t{256} << 20;
  /// Files of at least so many bytes, data files and cache files, are known again by their size, inode and
  /// times (see FileNotes), smaller ones by all of their bytes.
  std::uint64_t noted_from_bytes = std::uint64_t{64} << 20;
  unsigned threads = 0;     ///< for tokenising; 0: as many as the machine has
  std::uint64_t seed = 42;  ///< chooses the rows of validation_fraction
};

}  // namespace lorikeet::data
