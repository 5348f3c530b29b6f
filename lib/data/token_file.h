#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/anonymous_file.h"
#include "base/atomic_file.h"
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

/// Writes examples to a file of any length, in memory that doesn't grow with it.
///
/// The file: words (see TokenRows), padded to 8 bytes; begins, lengths, label counts, source rows and source
/// lines, an array each, padded to 8 bytes; meta (JSON, padded); a trailer with the sizes and the sha256 of
/// all behind the words. The words' own hash is the data set's fingerprint, in the meta.
class TokenFileWriter {
 public:
  /// A file that appears as `path` when it is whole.
  static std::unique_ptr<TokenFileWriter> make_named(const std::filesystem::path& path);
  /// A file without a name in `folder`, gone with the last copy of its data set.
  static std::unique_ptr<TokenFileWriter> make_anonymous(const std::filesystem::path& folder);

  /// Adds examples behind those that are there. This and the others throw Error (kEnvironment), e.g. on a
  /// full disk.
  void append(const TokenRows& rows);

  /// Writes the rest, and returns `about` with the data set that lies in the file. The object is spent.
  TokenizedFile finish(const TokenizedFile& about);

  const std::filesystem::path& folder() const { return folder_; }
  /// Written so far.
  std::uint64_t bytes() const { return written_; }

 private:
  /// An index array on its way to the file.
  struct Column {
    std::unique_ptr<AnonymousFile> file;  // what doesn't fit `waiting`
    std::string waiting;
    std::size_t bytes = 0;
  };
  void add_to(Column& column, std::string_view bytes) const;

  TokenFileWriter(std::filesystem::path folder, const std::filesystem::path* path);
  std::filesystem::path readable_path() const;
  void write(std::string_view bytes);
  void flush();
  void pad();
  void append_columns();

  std::filesystem::path folder_;
  std::unique_ptr<AtomicFile> named_;
  std::unique_ptr<AnonymousFile> anonymous_;
  std::string waiting_;
  std::uint64_t written_ = 0;
  std::uint64_t writeback_ = 0;  // bytes whose way to the disk has begun
  std::uint64_t words_ = 0;
  std::uint64_t sequences_ = 0;
  std::array<Column, 5> columns_;
};

/// Reads a file of TokenFileWriter by memory map. The index behind the words is always held to its hash;
/// with `check_words` the words are held to theirs too, for which all of them are read. Throws Error for a
/// damaged file.
TokenizedFile read_token_file(const std::filesystem::path& path, bool check_words);

}  // namespace lorikeet::data
