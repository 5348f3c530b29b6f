#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/columnar/arrow_metadata.h"

namespace lorikeet::data::columnar {

/// The values of dictionaries by their number.
using ArrowDictionaries = std::map<std::int64_t, std::shared_ptr<const Array>>;

/// The columns of `batch` as a struct; columns of types that aren't read are left out, as are lists and
/// structs of nothing else. `name` is the file's. Throws Error where buffers are shorter than the values
/// that they are to hold, offsets lead outside, or a dictionary is absent.
Array read_arrow_rows(const std::vector<ArrowField>& columns, const ArrowBatch& batch,
                      const ArrowDictionaries& dictionaries, const std::string& name);

/// True if values of `kind` may come from a dictionary here.
bool may_be_dictionary(Array::Kind kind);

/// Puts `more` behind `values`; both of the same kind, for which may_be_dictionary holds.
void append_values(Array& values, const Array& more);

}  // namespace lorikeet::data::columnar
