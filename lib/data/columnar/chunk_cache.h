#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "data/columnar/array.h"

namespace lorikeet::data::columnar {

/// The parts of tables (row groups, record batches) that were decoded last, over all files of a source: what
/// reading rows in order needs, and no more. Several threads may ask at once; a part is decoded by one of
/// them.
class ChunkCache {
 public:
  /// Part `chunk` of `file`, which `decode` makes where it isn't kept.
  std::shared_ptr<const Array> get(const void* file, std::size_t chunk, const std::function<Array()>& decode);

 private:
  static constexpr std::size_t kKept = 3;

  struct Slot {
    Slot(const void* of_file, std::size_t number) : file(of_file), chunk(number) {}
    const void* file;
    std::size_t chunk;
    std::mutex decoding;
    std::shared_ptr<const Array> rows;
  };
  std::shared_ptr<Slot> slot(const void* file, std::size_t chunk);

  std::mutex mutex_;
  std::list<std::shared_ptr<Slot>> slots_;  // the one asked for last in front
};

}  // namespace lorikeet::data::columnar
