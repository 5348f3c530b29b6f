#include "data/token_collector.h"

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

Error disk_error(const Error& problem, const TokenFileWriter& file) {
  return Error("[data.cache_dir] the tokens, " + format_bytes(file.bytes()) +
                   " so far, don't fit memory, and '" + file.folder().string() +
                   "' doesn't take them: " + problem.what() +
                   "; make room there, or set data.cache_dir to a folder with room (about 5 bytes a token)",
               problem.kind());
}

}  // namespace

TokenCollector::TokenCollector(std::size_t most_memory_bytes, MakeFile make_file)
    : most_memory_bytes_(most_memory_bytes), make_file_(std::move(make_file)) {}

void TokenCollector::add(const TokenRows& rows) {
  if (!file_ && rows_.bytes() + rows.bytes() <= most_memory_bytes_) {
    rows_.append(rows);
    return;
  }
  const bool first = file_ == nullptr;
  if (first) file_ = make_file_();
  try {
    if (first) file_->append(rows_);
    file_->append(rows);
  } catch (const Error& problem) {
    throw disk_error(problem, *file_);
  }
  if (first) rows_ = {};
}

TokenizedFile TokenCollector::finish_file(const TokenizedFile& about) {
  try {
    return file_->finish(about);
  } catch (const Error& problem) {
    throw disk_error(problem, *file_);
  }
}

}  // namespace lorikeet::data
