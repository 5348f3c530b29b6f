#include "data/columnar/table_file.h"

#include <algorithm>

#include "base/error.h"

namespace lorikeet::data::columnar {

void TableFile::require_rows() const {
  if (size() == 0) throw Error("[data] '" + name() + "' holds no row");
}

std::string TableFile::where(std::size_t i) const {
  return "[data] row " + std::to_string(i + 1) + " of " + name();
}

Json TableFile::parse(std::size_t i) const {
  const auto chunk =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  const auto rows = cache_->get(this, chunk, [&] { return decode(chunk); });
  return value_at(*rows, chunk == 0 ? i : i - ends_[chunk - 1], where(i));
}

}  // namespace lorikeet::data::columnar
