#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lorikeet::data::columnar {

/// A decoded column: values of one type with nulls, lists or structs of further columns. Parquet's row groups
/// and Arrow's record batches are decoded into it, a table being a struct of its columns.
struct Array {
  enum class Kind : std::uint8_t {
    kNull,  ///< every value is null
    kBool,  ///< `integers`, 0 or 1
    kInteger,
    kUnsigned,  ///< `integers` holds the bits of unsigned 64-bit numbers
    kDouble,
    kString,
    kList,    ///< value i is elements [offsets[i], offsets[i + 1]) of `children[0]`
    kStruct,  ///< value i is an object of value i of each child
  };
  Kind kind = Kind::kNull;
  std::size_t size = 0;
  std::vector<std::uint8_t> valid;  ///< 0 where a value is null; empty where none is
  std::vector<std::int64_t> integers;
  std::vector<double> doubles;
  std::vector<std::string_view> strings;  ///< into `owners`, or into bytes that outlive this
  std::vector<std::size_t> offsets;       ///< [size + 1]
  std::vector<Array> children;
  std::vector<std::string> names;  ///< of a struct's children
  std::vector<std::shared_ptr<const std::string>> owners;

  bool is_null(std::size_t i) const { return kind == Kind::kNull || (!valid.empty() && valid[i] == 0); }
};

/// Value `i` as JSON. Throws Error "<where>: column 'a.b' ..." for a string that isn't UTF-8.
Json value_at(const Array& array, std::size_t i, const std::string& where);

}  // namespace lorikeet::data::columnar
