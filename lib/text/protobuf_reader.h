#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lorikeet::text {

/// Walks the fields of one protobuf message in untrusted bytes (protobuf.dev, "Encoding"). Every length is
/// checked against what is left before it is used.
class ProtobufReader {
 public:
  enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  struct Field {
    std::uint32_t number;
    Wire wire;
    std::uint64_t integer;   // kVarint, kFixed32, kFixed64
    std::string_view bytes;  // kBytes
  };

  /// `where` starts the text of errors.
  ProtobufReader(std::string_view message, const std::string& where) : rest_(message), where_(where) {}

  /// The next field; nullopt at the end. Throws Error for anything malformed, groups included.
  std::optional<Field> next();

 private:
  [[noreturn]] void fail(const std::string& what) const;
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t size);

  std::string_view rest_;
  const std::string& where_;
};

}  // namespace lorikeet::text
