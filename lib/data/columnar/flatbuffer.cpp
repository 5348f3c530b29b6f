#include "data/columnar/flatbuffer.h"

#include <cstring>

#include "base/error.h"

namespace lorikeet::data::columnar {
namespace {

[[noreturn]] void fail_outside(const std::string& name) {
  throw Error(
      "[data] '" + name +
      "': a description in the file leads outside of it; the file is damaged, fetch or write it again");
}

}  // namespace

std::string_view FlatVector::element(std::size_t i, std::size_t bytes) const {
  return buffer_.substr(begin_ + i * bytes, bytes);
}

FlatTable FlatVector::table(std::size_t i) const {
  const std::size_t place = begin_ + i * sizeof(std::uint32_t);
  std::uint32_t offset = 0;
  std::memcpy(&offset, buffer_.data() + place, sizeof offset);
  return {buffer_, place + offset, name_};
}

FlatTable::FlatTable(std::string_view buffer, std::size_t place, const std::string* name)
    : buffer_(buffer), place_(place), name_(name) {
  const auto back = static_cast<std::int64_t>(read<std::int32_t>(place));
  const std::int64_t vtable = static_cast<std::int64_t>(place) - back;
  if (vtable < 0) fail_outside(*name_);
  constexpr std::size_t kHead = 2 * sizeof(std::uint16_t);  // sizes of the vtable and of the table
  members_ = static_cast<std::size_t>(vtable) + kHead;
  const std::size_t bytes = read<std::uint16_t>(static_cast<std::size_t>(vtable));
  if (bytes < kHead) fail_outside(*name_);
  count_ = (bytes - kHead) / sizeof(std::uint16_t);
  part(members_, bytes - kHead);
}

FlatTable FlatTable::root(std::string_view buffer, const std::string& name) {
  std::uint32_t place = 0;
  if (buffer.size() < sizeof place) fail_outside(name);
  std::memcpy(&place, buffer.data(), sizeof place);
  return {buffer, place, &name};
}

std::string_view FlatTable::part(std::size_t place, std::size_t bytes) const {
  if (place > buffer_.size() || bytes > buffer_.size() - place) fail_outside(*name_);
  return buffer_.substr(place, bytes);
}

std::optional<std::size_t> FlatTable::place_of(unsigned member) const {
  if (member >= count_) return std::nullopt;
  const std::size_t offset = read<std::uint16_t>(members_ + member * sizeof(std::uint16_t));
  return offset == 0 ? std::nullopt : std::optional(place_ + offset);
}

std::string_view FlatTable::text(unsigned member) const {
  const auto place = place_of(member);
  if (!place) return {};
  const std::size_t begin = follow(*place);
  return part(begin + sizeof(std::uint32_t), read<std::uint32_t>(begin));
}

std::optional<FlatTable> FlatTable::table(unsigned member) const {
  const auto place = place_of(member);
  return place ? std::optional(FlatTable(buffer_, follow(*place), name_)) : std::nullopt;
}

FlatVector FlatTable::vector(unsigned member, std::size_t bytes) const {
  const auto place = place_of(member);
  if (!place) return {};
  const std::size_t begin = follow(*place);
  const std::size_t size = read<std::uint32_t>(begin);
  part(begin + sizeof(std::uint32_t), size * bytes);
  return {buffer_, begin + sizeof(std::uint32_t), size, name_};
}

}  // namespace lorikeet::data::columnar
