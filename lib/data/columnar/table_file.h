#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "data/columnar/array.h"
#include "data/columnar/chunk_cache.h"
#include "data/file_bytes.h"
#include "data/record_source.h"

namespace lorikeet::data::columnar {

/// A file that holds a table in parts, each of which is decoded when one of its rows is first asked for: the
/// memory that reading takes is that of a few parts.
class TableFile : public RecordSource {
 public:
  std::size_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::size_t line(std::size_t /*i*/) const override { return 0; }
  std::string where(std::size_t i) const override;
  Json parse(std::size_t i) const override;
  const std::string& name() const override { return file_.name(); }

 protected:
  TableFile(FileBytes file, std::shared_ptr<ChunkCache> cache)
      : file_(std::move(file)), cache_(std::move(cache)) {}

  /// Says that the next part has `rows` rows.
  void add_chunk(std::size_t rows) { ends_.push_back(size() + rows); }
  /// Throws Error if there is no row.
  void require_rows() const;
  /// Part `chunk` as a struct of its columns; called by one thread at a time for a part.
  virtual Array decode(std::size_t chunk) const = 0;

  std::string_view bytes() const { return file_.bytes(); }
  /// Says that what was read of the file is done with for now; see FileBytes.
  void release() const { file_.release(file_.bytes()); }

 private:
  FileBytes file_;
  std::shared_ptr<ChunkCache> cache_;
  std::vector<std::size_t> ends_;  // part k holds the rows [ends_[k - 1], ends_[k])
};

}  // namespace lorikeet::data::columnar
