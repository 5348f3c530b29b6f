#pragma once

#include <memory>
#include <vector>

#include "data/columnar/arrow_columns.h"
#include "data/columnar/table_file.h"

namespace lorikeet::data::columnar {

/// A file of Arrow's IPC format, which Feather's second version is too, or a stream of it, as Hugging Face's
/// datasets caches and saves: a row is an object of its columns. Read are strings, numbers, booleans, lists,
/// structs and maps of them, also through dictionaries, compressed with LZ4, zstd or not at all; columns of
/// other types are left out of the rows.
class ArrowFile final : public TableFile {
 public:
  /// Reads and checks the descriptions of all parts, and dictionaries. Throws Error where they don't fit
  /// together or there is no row; damage of values shows when rows are parsed.
  ArrowFile(FileBytes file, std::shared_ptr<ChunkCache> cache);

 private:
  struct Part {
    ArrowMessage message;
    std::shared_ptr<const ArrowDictionaries> dictionaries;  ///< as they are at this place of the file
  };
  Array decode(std::size_t chunk) const override;
  void read_dictionary(const ArrowMessage& message);

  std::vector<ArrowField> columns_;
  std::vector<Part> parts_;
  std::shared_ptr<const ArrowDictionaries> dictionaries_;
};

}  // namespace lorikeet::data::columnar
