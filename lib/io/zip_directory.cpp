#include "io/zip_directory.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"

// APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3.7 (local headers), 4.3.12 (central directory), 4.3.14 to 16 (its
// end), 4.5.3 (zip64's extra field).
namespace lorikeet::io {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                      kLocatorBytes = 20;
constexpr std::size_t kMostComment = 65535;

class ZipReader {
 public:
  ZipReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::map<std::string, std::string_view, std::less<>> read() {
    const Directory directory = find_directory();
    std::map<std::string, std::string_view, std::less<>> members;
    std::uint64_t place = directory.place;
    for (std::uint64_t i = 0; i < directory.entries; ++i) place = read_entry(place, members);
    return members;
  }

 private:
  struct Directory {
    std::uint64_t place = 0, entries = 0;
  };

  [[noreturn]] void fail(const std::string& what) const { throw Error("[file] '" + name_ + "': " + what); }

  template <typename T>
  T number(std::uint64_t place) const {
    T value{};
    part(place, sizeof value).copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }

  std::string_view part(std::uint64_t place, std::uint64_t length) const {
    if (place > bytes_.size() || length > bytes_.size() - place)
      fail("the archive is cut short or damaged: a part of it lies outside of the file");
    return bytes_.substr(place, length);
  }

  // The end's record, which is followed by a comment of unknown length.
  Directory find_directory() const {
    if (bytes_.size() < kEndBytes) fail("expected a zip archive, the file is too short for one");
    const std::size_t last = bytes_.size() - kEndBytes;
    const std::size_t first = last > kMostComment ? last - kMostComment : 0;
    for (std::size_t place = last + 1; place-- > first;) {
      if (number<std::uint32_t>(place) != kEnd ||
          place + kEndBytes + number<std::uint16_t>(place + 20) != bytes_.size())
        continue;
      Directory found{number<std::uint32_t>(place + 16), number<std::uint16_t>(place + 10)};
      if (place >= kLocatorBytes && number<std::uint32_t>(place - kLocatorBytes) == kLocator64) {
        const auto end = number<std::uint64_t>(place - kLocatorBytes + 8);
        part(end, kEnd64Bytes);
        if (number<std::uint32_t>(end) != kEnd64) fail("the archive's end is damaged");
        found = {number<std::uint64_t>(end + 48), number<std::uint64_t>(end + 32)};
      }
      return found;
    }
    fail("expected a zip archive, found no end of one");
  }

  // Returns where the next one is.
  std::uint64_t read_entry(std::uint64_t place,
                           std::map<std::string, std::string_view, std::less<>>& members) const {
    part(place, kCentralBytes);
    if (number<std::uint32_t>(place) != kCentral) fail("the archive's directory is damaged");
    const auto flags = number<std::uint16_t>(place + 8), method = number<std::uint16_t>(place + 10);
    const auto name_length = number<std::uint16_t>(place + 28),
               extra_length = number<std::uint16_t>(place + 30),
               comment_length = number<std::uint16_t>(place + 32);
    const std::string member(part(place + kCentralBytes, name_length));
    std::uint64_t packed = number<std::uint32_t>(place + 20), size = number<std::uint32_t>(place + 24),
                  local = number<std::uint32_t>(place + 42);
    read_zip64(part(place + kCentralBytes + name_length, extra_length), size, packed, local);
    if ((flags & 1) != 0 || method != 0 || packed != size)
      fail("'" + escape_control(member) + "' in it is compressed or encrypted, which torch.save doesn't do");
    part(local, kLocalBytes);
    if (number<std::uint32_t>(local) != kLocal)
      fail("the header of '" + escape_control(member) + "' is damaged");
    const std::uint64_t begin =
        local + kLocalBytes + number<std::uint16_t>(local + 26) + number<std::uint16_t>(local + 28);
    if (!members.emplace(member, part(begin, size)).second)
      fail("it holds '" + escape_control(member) + "' twice");
    return place + kCentralBytes + name_length + extra_length + comment_length;
  }

  // Replaces the values that didn't fit their 32 bits, in this order.
  static void read_zip64(std::string_view extra, std::uint64_t& size, std::uint64_t& packed,
                         std::uint64_t& local) {
    constexpr std::size_t kHead = 4;
    while (extra.size() >= kHead) {
      std::uint16_t id = 0, length = 0;
      std::memcpy(&id, extra.data(), sizeof id);
      std::memcpy(&length, extra.substr(sizeof id).data(), sizeof length);
      std::string_view field = extra.substr(kHead, length);
      extra.remove_prefix(std::min(extra.size(), kHead + std::size_t{length}));
      if (id != 1) continue;
      for (std::uint64_t* value : {&size, &packed, &local}) {
        if (*value != UINT32_MAX || field.size() < sizeof *value) continue;
        field.copy(reinterpret_cast<char*>(value), sizeof *value);
        field.remove_prefix(sizeof *value);
      }
    }
  }

  std::string_view bytes_;
  const std::string& name_;
};

}  // namespace

std::map<std::string, std::string_view, std::less<>> read_zip_directory(std::string_view bytes,
                                                                        const std::string& name) {
  return ZipReader(bytes, name).read();
}

}  // namespace lorikeet::io
