#include "data/columnar/array.h"

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data::columnar {
namespace {

// `path` is the column's name for errors, "messages.content". The recursion is as deep as the schema, which
// readers bound.
Json read(const Array& array, std::size_t i, const std::string& where, const std::string& path) {
  if (array.is_null(i)) return {};
  switch (array.kind) {
    case Array::Kind::kNull: return {};
    case Array::Kind::kBool: return array.integers[i] != 0;
    case Array::Kind::kInteger: return array.integers[i];
    case Array::Kind::kUnsigned:
      if (array.integers[i] >= 0) return array.integers[i];
      return static_cast<double>(static_cast<std::uint64_t>(array.integers[i]));
    case Array::Kind::kDouble: return array.doubles[i];
    case Array::Kind::kString:
      if (!is_utf8(array.strings[i]))
        throw Error(where + ": column '" + escape_control(path) + "' holds text that is not UTF-8");
      return array.strings[i];
    case Array::Kind::kList: {
      Json::Array items;
      items.reserve(array.offsets[i + 1] - array.offsets[i]);
      for (std::size_t k = array.offsets[i]; k < array.offsets[i + 1]; ++k)
        items.push_back(read(array.children[0], k, where, path));
      return items;
    }
    case Array::Kind::kStruct: {
      Json::Object members;
      members.reserve(array.children.size());
      for (std::size_t c = 0; c < array.children.size(); ++c) {
        const std::string& name = array.names[c];
        members.emplace_back(name,
                             read(array.children[c], i, where, path.empty() ? name : path + "." + name));
      }
      return members;
    }
  }
  throw Error("[data] unknown kind of column");
}

}  // namespace

Json value_at(const Array& array, std::size_t i, const std::string& where) {
  return read(array, i, where, "");
}

}  // namespace lorikeet::data::columnar
