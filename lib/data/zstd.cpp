#include "data/zstd.h"

#include <zstd.h>

#include <memory>
#include <vector>

#include "base/error.h"

namespace lorikeet::data {
namespace {

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

}  // namespace

bool is_zstd(std::string_view bytes) {
  if (bytes.size() < 4) return false;
  // A frame's magic number 0xFD2FB528, or 0x184D2A50 to 0x184D2A5F, little-endian.
  const bool frame = bytes.starts_with("\x28\xB5\x2F\xFD");
  const bool skippable = (bytes[0] & '\xF0') == '\x50' && bytes.substr(1, 3) == "\x2A\x4D\x18";
  return frame || skippable;
}

std::string unzstd(std::string_view bytes, const std::string& name, const ExpansionLimits& limits) {
  const std::unique_ptr<ZSTD_DStream, FreeStream> stream(ZSTD_createDStream());
  if (!stream) throw Error("[data] zstd didn't start", ErrorKind::kEnvironment);
  // Windows of any size: all of the text is held in memory anyway.
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax,
                         ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  std::vector<char> buffer(std::size_t{1} << 18);
  std::string out;
  ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
  while (true) {
    ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
    const std::size_t before = input.pos;
    const std::size_t status = ZSTD_decompressStream(stream.get(), &output, &input);
    if (ZSTD_isError(status) != 0) {
      throw Error("[data] '" + name + "': the zstd data is corrupt near byte " + std::to_string(input.pos) +
                  " (" + ZSTD_getErrorName(status) + ")");
    }
    out.append(buffer.data(), output.pos);
    check_expansion(out.size(), input.pos, limits, "zstd", name);
    // 0: a frame ended, and all of it was written.
    if (status == 0 && input.pos == input.size) return out;
    if (input.pos == before && output.pos == 0) {
      throw Error("[data] '" + name + "': the zstd file is cut short: expected more data after " +
                  std::to_string(bytes.size()) + " bytes; fetch it again");
    }
  }
}

}  // namespace lorikeet::data
