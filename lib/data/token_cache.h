#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/token_dataset.h"
#include "data/tokenize.h"

namespace lorikeet::data {

/// A tokenised file and what is to be said about how it came about.
struct TokenizedFile {
  TokenDataset dataset;
  RowCounts counts;
  std::string format;                ///< the format's name, and whether it was found or configured
  std::string template_description;  ///< "" where rows need no template
};

/// $XDG_CACHE_HOME/lorikeet/tokens, else ~/.cache/lorikeet/tokens; nullopt when neither variable holds an
/// absolute path.
std::optional<std::filesystem::path> default_cache_dir();

/// Tokenised files on disk, one file a key. The folder is made with mode 0700 where it is absent and used as
/// it is otherwise; files are made with mode 0600, by atomic rename, and those that somebody else could have
/// written are not read. A file carries a sha256 of its content and is read by memory map. Nothing here
/// throws for a bad or unwritable cache: it says so by a warning, and the data is tokenised again.
class TokenCache {
 public:
  explicit TokenCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The entry of `key` (hexadecimal), or nullopt if there is none or it is damaged.
  std::optional<TokenizedFile> find(const std::string& key) const;

  /// Keeps `entry` under `key`, and gives it back read from the file; nullopt if it couldn't be written.
  std::optional<TokenizedFile> store(const std::string& key, const TokenizedFile& entry) const;

  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".tokens"); }

 private:
  bool prepare_folder() const;

  std::filesystem::path folder_;
};

/// Everything that decides the tokens of a file, as a sha256: the file's bytes, the tokenizer, the
/// checkpoint's chat template and the settings, and the version of this code's output.
std::string cache_key(std::string_view file_bytes, const DataOptions& options,
                      const text::Tokenizer& tokenizer);

}  // namespace lorikeet::data
