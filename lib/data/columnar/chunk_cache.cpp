#include "data/columnar/chunk_cache.h"

#include <algorithm>

namespace lorikeet::data::columnar {

std::shared_ptr<ChunkCache::Slot> ChunkCache::slot(const void* file, std::size_t chunk) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const std::shared_ptr<Slot>& slot) {
    return slot->file == file && slot->chunk == chunk;
  });
  if (found != slots_.end()) {
    slots_.splice(slots_.begin(), slots_, found);
  } else {
    slots_.push_front(std::make_shared<Slot>(file, chunk));
    if (slots_.size() > kKept) slots_.pop_back();
  }
  return slots_.front();
}

std::shared_ptr<const Array> ChunkCache::get(const void* file, std::size_t chunk,
                                             const std::function<Array()>& decode) {
  const std::shared_ptr<Slot> wanted = slot(file, chunk);
  const std::lock_guard lock(wanted->decoding);
  if (!wanted->rows) wanted->rows = std::make_shared<const Array>(decode());
  return wanted->rows;
}

}  // namespace lorikeet::data::columnar
