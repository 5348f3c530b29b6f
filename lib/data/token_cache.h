#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/file_notes.h"
#include "data/options.h"
#include "data/token_file.h"
#include "text/tokenizer.h"

namespace lorikeet::data {

/// $XDG_CACHE_HOME/lorikeet/tokens, else ~/.cache/lorikeet/tokens; nullopt when neither variable holds an
/// absolute path.
std::optional<std::filesystem::path> default_cache_dir();

/// Tokenised files on disk, one file a key. The folder is made with mode 0700 where it is absent and used as
/// it is otherwise; files are made with mode 0600, by atomic rename, and those that somebody else could have
/// written are not read. A file carries hashes of its content and is read by memory map. Nothing here
/// throws for a bad or unwritable cache: it says so by a warning, and the data is tokenised again.
class TokenCache {
 public:
  /// Files of at least `noted_from_bytes` are held to their hash once, and then known again by FileNotes.
  TokenCache(std::filesystem::path folder, std::uint64_t noted_from_bytes)
      : folder_(std::move(folder)), notes_(folder_, noted_from_bytes) {}

  /// sha256 of the data file `file` as `now` says that it is, from a note where there is one.
  std::string sha256_of(const std::filesystem::path& file, const FileFacts& now) const;

  /// The entry of `key` (hexadecimal), or nullopt if there is none or it is damaged.
  std::optional<TokenizedFile> find(const std::string& key) const;

  /// Keeps `rows` with what `about` says under `key`, and gives the entry back read from the file; nullopt if
  /// it couldn't be written.
  std::optional<TokenizedFile> store(const std::string& key, const TokenRows& rows,
                                     const TokenizedFile& about) const;

  /// A file for the entry of `key`, for what doesn't fit memory; null if none can be made.
  std::unique_ptr<TokenFileWriter> writer(const std::string& key) const;
  /// Notes that the entry of `key`, written by `writer` just now, is whole.
  void note_whole(const std::string& key, const std::string& fingerprint) const;

  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".tokens"); }

 private:
  bool prepare_folder() const;

  std::filesystem::path folder_;
  FileNotes notes_;
};

/// Everything that decides the tokens of a file, as a sha256: `content` of the source (names and hashes of
/// its files), the tokenizer, the checkpoint's chat template and the settings, and the version of this code's
/// output.
std::string cache_key(const std::string& content, const DataOptions& options,
                      const text::Tokenizer& tokenizer);

}  // namespace lorikeet::data
