#include "data/columnar/codec.h"

#include <lz4.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <climits>

#include "base/error.h"

namespace lorikeet::data::columnar {
namespace {

const char* codec_name(Codec codec) {
  switch (codec) {
    case Codec::kNone: return "stored";
    case Codec::kSnappy: return "snappy";
    case Codec::kGzip: return "gzip";
    case Codec::kZstd: return "zstd";
    case Codec::kLz4Block:
    case Codec::kLz4Frame: return "lz4";
  }
  return "unknown";
}

bool unpack_snappy(std::string_view in, std::string& out) {
  std::size_t size = 0;
  if (snappy_uncompressed_length(in.data(), in.size(), &size) != SNAPPY_OK || size != out.size())
    return false;
  return snappy_uncompress(in.data(), in.size(), out.data(), &size) == SNAPPY_OK && size == out.size();
}

bool unpack_gzip(std::string_view in, std::string& out) {
  z_stream stream{};
  // 32 + MAX_WBITS: a gzip or a zlib wrapper, which its header says.
  if (inflateInit2(&stream, 32 + MAX_WBITS) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = inflate(&stream, Z_FINISH);
  const bool whole = status == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return whole;
}

bool unpack_zstd(std::string_view in, std::string& out) {
  return ZSTD_decompress(out.data(), out.size(), in.data(), in.size()) == out.size();
}

bool unpack_lz4_block(std::string_view in, std::string& out) {
  const int got =
      LZ4_decompress_safe(in.data(), out.data(), static_cast<int>(in.size()), static_cast<int>(out.size()));
  return got >= 0 && static_cast<std::size_t>(got) == out.size();
}

bool unpack_lz4_frame(std::string_view in, std::string& out) {
  LZ4F_dctx* context = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) != 0) return false;
  std::size_t taken = 0, made = 0;
  bool ended = false, failed = false;
  while (!ended && !failed) {
    std::size_t room = out.size() - made, left = in.size() - taken;
    const std::size_t status =
        LZ4F_decompress(context, out.data() + made, &room, in.data() + taken, &left, nullptr);
    taken += left;
    made += room;
    ended = status == 0;
    failed = LZ4F_isError(status) != 0 || (!ended && room == 0 && left == 0);
  }
  LZ4F_freeDecompressionContext(context);
  return ended && made == out.size();
}

}  // namespace

std::string unpack(Codec codec, std::string_view bytes, std::uint64_t size, const std::string& name,
                   const ExpansionLimits& limits) {
  const std::string what = codec_name(codec);
  if (size > INT_MAX || bytes.size() > INT_MAX) {
    throw Error("[data] '" + name + "': expected " + what +
                " pages and buffers below 2 GiB, found a larger one");
  }
  check_expansion(size, bytes.size(), limits, what, name);
  if (codec == Codec::kNone && size == bytes.size()) return std::string(bytes);
  if (size == 0) return {};
  std::string out(static_cast<std::size_t>(size), '\0');
  bool whole = false;
  switch (codec) {
    case Codec::kNone: break;
    case Codec::kSnappy: whole = unpack_snappy(bytes, out); break;
    case Codec::kGzip: whole = unpack_gzip(bytes, out); break;
    case Codec::kZstd: whole = unpack_zstd(bytes, out); break;
    case Codec::kLz4Block: whole = unpack_lz4_block(bytes, out); break;
    case Codec::kLz4Frame: whole = unpack_lz4_frame(bytes, out); break;
  }
  if (whole) return out;
  throw Error("[data] '" + name + "': " + std::to_string(bytes.size()) + " bytes of " + what +
              " data don't unpack to the " + std::to_string(size) +
              " bytes that their header says; the file is damaged, fetch or write it again");
}

}  // namespace lorikeet::data::columnar
