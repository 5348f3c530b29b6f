#pragma once

#include <functional>
#include <memory>

#include "data/token_file.h"

namespace lorikeet::data {

/// Collects examples in memory, or in a file once they are too many.
class TokenCollector {
 public:
  using MakeFile = std::function<std::unique_ptr<TokenFileWriter>()>;

  /// Asks `make_file` when the examples take more than `most_memory_bytes`.
  TokenCollector(std::size_t most_memory_bytes, MakeFile make_file);

  /// Adds examples behind those that are there. Throws Error (kEnvironment) if they don't fit the disk,
  /// saying which folder is full and what to do.
  void add(const TokenRows& rows);

  /// The file that the examples went to, which is still to be finished; null where they are in memory.
  TokenFileWriter* file() const { return file_.get(); }
  /// The examples where there is no file.
  TokenRows& rows() { return rows_; }

  /// Finishes the file; throws as add does.
  TokenizedFile finish_file(const TokenizedFile& about);

 private:
  std::size_t most_memory_bytes_;
  MakeFile make_file_;
  TokenRows rows_;
  std::unique_ptr<TokenFileWriter> file_;
};

}  // namespace lorikeet::data
