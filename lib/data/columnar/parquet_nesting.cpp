#include "data/columnar/parquet_nesting.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data::columnar {
namespace {

// The innermost list around a field, or the table's rows: an entry of a column belongs to one of its elements
// when its levels are these.
struct Enclosing {
  int repetition = 0;
  int definition = 0;
};

class Assembler {
 public:
  Assembler(std::map<std::size_t, LeafColumn> columns, std::string name)
      : columns_(std::move(columns)), name_(std::move(name)) {}

  Array field(const SchemaNode& node, const Enclosing& around) {
    if (node.repetition == Repetition::kRepeated) return list(node, node, around);
    if (node.is_list && node.children.size() == 1 && node.children[0].repetition == Repetition::kRepeated)
      return list(node, node.children[0], around);
    return value(node, around);
  }

  Array value(const SchemaNode& node, const Enclosing& around) {
    if (node.is_column()) return leaf(node, around);
    Array out;
    out.kind = Array::Kind::kStruct;
    for (const SchemaNode& child : node.children) {
      if (first_column(child) == nullptr) continue;
      out.names.push_back(child.name);
      out.children.push_back(field(child, around));
      if (out.children.back().size != out.children.front().size)
        fail("columns of '" + escape_control(node.name) + "' disagree about the number of rows");
    }
    out.size = out.children.front().size;
    const bool may_be_null = node.repetition == Repetition::kOptional;
    if (may_be_null) {
      const LeafColumn& column = *first_column(node);
      for_elements(column, around, [&](std::size_t entry) {
        out.valid.push_back(column.definition_levels[entry] >= node.definition_level ? 1 : 0);
      });
    }
    return out;
  }

  // A column below `node` that is read, or nullptr.
  const LeafColumn* first_column(const SchemaNode& node) const {
    if (node.is_column()) {
      const auto found = columns_.find(node.column);
      return found == columns_.end() ? nullptr : &found->second;
    }
    for (const SchemaNode& child : node.children)
      if (const LeafColumn* found = first_column(child)) return found;
    return nullptr;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("[data] '" + name_ + "': " + what + "; the file is damaged, fetch or write it again");
  }

  [[noreturn]] void fail_outside(const SchemaNode& node) const {
    fail("values of column '" + escape_control(node.name) + "' lie outside of their rows or lists");
  }

  static int repetition(const LeafColumn& column, std::size_t entry) {
    return column.repetition_levels.empty() ? 0 : column.repetition_levels[entry];
  }
  static int definition(const LeafColumn& column, std::size_t entry) {
    return column.definition_levels.empty() ? 0 : column.definition_levels[entry];
  }

  // Calls f(entry) for each entry with which an element of `around` begins.
  template <typename F>
  static void for_elements(const LeafColumn& column, const Enclosing& around, F f) {
    for (std::size_t entry = 0; entry < column.entries; ++entry) {
      if (repetition(column, entry) <= around.repetition && definition(column, entry) >= around.definition)
        f(entry);
    }
  }

  Array leaf(const SchemaNode& node, const Enclosing& around) {
    LeafColumn& column = columns_.at(node.column);
    Array& stored = column.values;
    Array out;
    out.kind = stored.kind;
    if (node.definition_level == around.definition) {  // no nulls, but where a list is empty
      std::size_t elements = 0;
      for_elements(column, around, [&](std::size_t) { ++elements; });
      if (elements != stored.size) fail_outside(node);
      return std::move(stored);
    }
    std::size_t next = 0;
    for_elements(column, around, [&](std::size_t entry) {
      const bool there = definition(column, entry) == node.definition_level;
      out.valid.push_back(there ? 1 : 0);
      if (there && next == stored.size) fail("column '" + escape_control(node.name) + "' has too few values");
      switch (out.kind) {
        case Array::Kind::kDouble: out.doubles.push_back(there ? stored.doubles[next] : 0); break;
        case Array::Kind::kString:
          out.strings.push_back(there ? stored.strings[next] : std::string_view());
          break;
        default: out.integers.push_back(there ? stored.integers[next] : 0);
      }
      next += there ? 1 : 0;
    });
    if (next != stored.size) fail_outside(node);
    out.size = out.valid.size();
    out.owners = std::move(stored.owners);
    return out;
  }

  void check_same_offsets(const SchemaNode& node, const SchemaNode& repeated, const Enclosing& around,
                          const std::vector<std::size_t>& offsets) const {
    if (node.is_column()) {
      const auto found = columns_.find(node.column);
      if (found != columns_.end() && list_offsets(found->second, repeated, around) != offsets)
        fail("columns of the list '" + escape_control(repeated.name) +
             "' disagree about where its values begin");
      return;
    }
    for (const SchemaNode& child : node.children) check_same_offsets(child, repeated, around, offsets);
  }

  std::vector<std::size_t> list_offsets(const LeafColumn& column, const SchemaNode& repeated,
                                        const Enclosing& around) const {
    std::vector<std::size_t> offsets;
    std::size_t elements = 0;
    for (std::size_t entry = 0; entry < column.entries; ++entry) {
      const int level = repetition(column, entry), there = definition(column, entry);
      if (level <= around.repetition && there >= around.definition) offsets.push_back(elements);
      if (level <= repeated.repetition_level && there >= repeated.definition_level) {
        if (offsets.empty()) fail("a list goes on before its first row begins");
        ++elements;
      }
    }
    offsets.push_back(elements);
    return offsets;
  }

  // `outer` is the field that is the list, `repeated` the node that repeats: its child, or itself.
  Array list(const SchemaNode& outer, const SchemaNode& repeated, const Enclosing& around) {
    const LeafColumn& column = *first_column(repeated);
    Array out;
    out.kind = Array::Kind::kList;
    out.offsets = list_offsets(column, repeated, around);
    out.size = out.offsets.size() - 1;
    check_same_offsets(repeated, repeated, around, out.offsets);
    if (outer.repetition == Repetition::kOptional) {
      for_elements(column, around, [&](std::size_t entry) {
        out.valid.push_back(column.definition_levels[entry] >= outer.definition_level ? 1 : 0);
      });
    }
    const Enclosing inside{repeated.repetition_level, repeated.definition_level};
    // Older writers repeat the element itself (parquet-format, LogicalTypes.md, "Backward-compatibility
    // rules").
    const bool is_element = &outer == &repeated || repeated.children.size() != 1 ||
                            repeated.name == "array" || repeated.name == outer.name + "_tuple";
    out.children.push_back(is_element ? value(repeated, inside) : field(repeated.children[0], inside));
    if (out.children[0].size != out.offsets.back())
      fail("the list '" + escape_control(outer.name) + "' has another number of values than its levels say");
    return out;
  }

  std::map<std::size_t, LeafColumn> columns_;
  std::string name_;
};

}  // namespace

Array assemble_rows(const SchemaNode& root, std::map<std::size_t, LeafColumn> columns, std::size_t rows,
                    const std::string& name) {
  Assembler assembler(std::move(columns), name);
  Array table;
  table.kind = Array::Kind::kStruct;
  if (assembler.first_column(root) != nullptr) table = assembler.value(root, {});
  if (!table.children.empty() && table.size != rows) {
    throw Error("[data] '" + name + "': the Parquet footer says " + std::to_string(rows) +
                " rows in a row group, its columns hold " + std::to_string(table.size) +
                "; the file is damaged, fetch or write it again");
  }
  table.size = rows;
  return table;
}

}  // namespace lorikeet::data::columnar
