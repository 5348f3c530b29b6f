#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lorikeet::data::columnar {

class FlatTable;

/// The elements of a FlatBuffers vector.
class FlatVector {
 public:
  FlatVector() = default;
  std::size_t size() const { return size_; }
  /// Element `i` of a vector of structs (or numbers) of `bytes` bytes each, as they lie there.
  std::string_view element(std::size_t i, std::size_t bytes) const;
  /// Element `i` of a vector of tables.
  FlatTable table(std::size_t i) const;

 private:
  friend class FlatTable;
  FlatVector(std::string_view buffer, std::size_t begin, std::size_t size, const std::string* name)
      : buffer_(buffer), begin_(begin), size_(size), name_(name) {}

  std::string_view buffer_;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
  const std::string* name_ = nullptr;
};

/// A table of a FlatBuffers buffer (https://flatbuffers.dev/internals), read in place. Its members are known
/// by their number in the schema. Every place is checked against the buffer: whatever lies outside of it is
/// an Error that names the file. A buffer may still name one table in many places, so that its tables
/// together can be far more than its bytes: who walks through them has to count.
class FlatTable {
 public:
  /// The buffer's root. `name`, the file's, must outlive the table, as the bytes must.
  static FlatTable root(std::string_view buffer, const std::string& name);

  bool has(unsigned member) const { return place_of(member).has_value(); }
  /// A number (a bool is one of 8 bits); `absent` where the table doesn't have it.
  template <typename T>
  T number(unsigned member, T absent) const {
    const auto place = place_of(member);
    return place ? read<T>(*place) : absent;
  }
  /// "" where absent.
  std::string_view text(unsigned member) const;
  std::optional<FlatTable> table(unsigned member) const;
  /// Empty where absent. `bytes` is the size of an element: 4 for tables.
  FlatVector vector(unsigned member, std::size_t bytes) const;

 private:
  friend class FlatVector;
  FlatTable(std::string_view buffer, std::size_t place, const std::string* name);

  template <typename T>
  T read(std::size_t place) const {
    T value{};
    part(place, sizeof value).copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string_view part(std::size_t place, std::size_t bytes) const;
  std::optional<std::size_t> place_of(unsigned member) const;
  /// The place that the offset at `place` leads to.
  std::size_t follow(std::size_t place) const { return place + read<std::uint32_t>(place); }

  std::string_view buffer_;
  std::size_t place_ = 0;
  std::size_t members_ = 0;  // of the vtable: where members begin, and how many there are
  std::size_t count_ = 0;
  const std::string* name_ = nullptr;
};

}  // namespace lorikeet::data::columnar
