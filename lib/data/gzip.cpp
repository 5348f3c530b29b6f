#include "data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {
namespace {

class Inflater {
 public:
  Inflater() {
    // 16 + MAX_WBITS: a gzip wrapper and nothing else.
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK)
      throw Error("[data] zlib didn't start", ErrorKind::kEnvironment);
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b'; }

std::string gunzip(std::string_view bytes, const std::string& name, const ExpansionLimits& limits) {
  const auto fail = [&](const std::string& what) -> Error { return Error("[data] '" + name + "': " + what); };
  Inflater inflater;
  z_stream& stream = inflater.stream();
  std::string out;
  std::vector<char> buffer(std::size_t{1} << 18);
  std::size_t taken = 0;
  bool member_ended = false;
  while (true) {
    if (stream.avail_in == 0 && taken < bytes.size()) {
      const std::size_t n = std::min<std::size_t>(bytes.size() - taken, std::size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));
      stream.avail_in = static_cast<uInt>(n);
      taken += n;
    }
    if (member_ended) {
      if (stream.avail_in == 0) return out;
      inflateReset(&stream);  // gzip files may be concatenated
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    const std::size_t produced = buffer.size() - stream.avail_out;
    if (status == Z_BUF_ERROR ||
        (status == Z_OK && produced == 0 && stream.avail_in == 0 && taken == bytes.size()))
      throw fail("the gzip file is cut short: expected more data after " + std::to_string(bytes.size()) +
                 " bytes; fetch it again");
    if (status != Z_OK && status != Z_STREAM_END) {
      throw fail("the gzip data is corrupt near byte " + std::to_string(taken - stream.avail_in) + " (" +
                 (stream.msg != nullptr ? stream.msg : "zlib error " + std::to_string(status)) + ")");
    }
    out.append(buffer.data(), produced);
    check_expansion(out.size(), taken - stream.avail_in, limits, "gzip", name);
    member_ended = status == Z_STREAM_END;
  }
}

}  // namespace lorikeet::data
