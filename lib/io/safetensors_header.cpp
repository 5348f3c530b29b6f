#include "io/safetensors_header.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::io {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

std::uint64_t read_length(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

// What a file that is no safetensors file looks like, to say what to do about it.
std::string guess_kind(std::string_view bytes) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("version https://git-lfs")) return "; it is a Git LFS pointer: run 'git lfs pull'";
  if (bytes.starts_with("PK\x03\x04"sv) || bytes.starts_with("\x80\x02"sv))
    return "; it looks like a PyTorch pickle: convert it with safetensors.torch.save_file";
  if (bytes.starts_with("GGUF")) return "; it is a GGUF file: use the original safetensors checkpoint";
  if (bytes.starts_with('<')) return "; it looks like a web page: download it again";
  return "";
}

std::vector<std::int64_t> read_shape(const JsonView& view) {
  static constexpr std::size_t kMaxDimensions = 32;
  std::vector<std::int64_t> shape;
  for (const JsonView& item : view.items()) shape.push_back(item.as_int());
  if (shape.size() > kMaxDimensions) view.fail("at most 32 dimensions");
  return shape;
}

SafetensorsHeader::Entry read_entry(const std::string& name, const JsonView& view, std::uint64_t data_offset,
                                    std::uint64_t data_bytes) {
  SafetensorsHeader::Entry entry;
  entry.tensor.name = name;
  const JsonView dtype = view.at("dtype");
  const auto known = dtype_from_safetensors(dtype.as_string());
  if (!known) {
    throw Error("[" + dtype.where() + "] expected a known dtype such as BF16 or F32, got '" +
                escape_control(dtype.as_string()) + "'");
  }
  entry.tensor.dtype = *known;
  entry.tensor.shape = read_shape(view.at("shape"));

  const JsonView offsets = view.at("data_offsets");
  const std::vector<JsonView> range = offsets.items();
  if (range.size() != 2) offsets.fail("two offsets");
  const std::int64_t begin = range[0].as_int();
  const std::int64_t end = range[1].as_int();
  if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > data_bytes) {
    throw Error("[" + offsets.where() + "] expected a range within the file's " + std::to_string(data_bytes) +
                " bytes of data, got " + std::to_string(begin) + " to " + std::to_string(end) +
                "; the file is cut or damaged");
  }
  entry.offset = data_offset + static_cast<std::uint64_t>(begin);
  entry.bytes = static_cast<std::uint64_t>(end - begin);

  const std::int64_t elements = element_count(entry.tensor.shape, view.where());
  const std::uint64_t expected = static_cast<std::uint64_t>(elements) * dtype_size(entry.tensor.dtype);
  if (expected != entry.bytes) {
    throw Error("[" + view.where() + "] expected " + std::to_string(expected) +
                " bytes by dtype and shape, got " + std::to_string(entry.bytes));
  }
  return entry;
}

// Sorted ranges have to follow each other from the data's first byte to the file's last.
void check_cover(const SafetensorsHeader& header, std::uint64_t file_bytes, const std::string& where) {
  std::uint64_t position = header.data_offset;
  for (const SafetensorsHeader::Entry& entry : header.entries) {
    if (entry.offset != position) {
      throw Error(
          "[" + where + "] tensor '" + escape_control(entry.tensor.name) + "': expected its bytes at " +
          std::to_string(position) + ", got " + std::to_string(entry.offset) + ": " +
          (entry.offset < position ? "it overlaps the tensor before it" : "there is a gap before it") +
          "; the file is damaged");
    }
    position += entry.bytes;
  }
  if (position != file_bytes) {
    throw Error("[" + where + "] expected a file of " + std::to_string(position) +
                " bytes by its header, got " + std::to_string(file_bytes) + "; the file is damaged");
  }
}

// The reference's dtypes from first to last written (Rust's derived order of its enum, reversed).
int write_rank(DType dtype) {
  switch (dtype) {
    case DType::kI64: return 0;
    case DType::kF64: return 1;
    case DType::kF32: return 2;
    case DType::kI32: return 3;
    case DType::kBF16: return 4;
    case DType::kF16: return 5;
    case DType::kI16: return 6;
    case DType::kF8E4M3: return 7;
    case DType::kF8E5M2: return 8;
    case DType::kI8: return 9;
    case DType::kU8: return 10;
    case DType::kBool: return 11;
  }
  return 12;
}

}  // namespace

std::int64_t element_count(const std::vector<std::int64_t>& shape, const std::string& where) {
  constexpr std::int64_t kMost = std::int64_t{1} << 58;  // times 8 bytes, still in 63 bits
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0)
      throw Error("[" + where + "] expected extents of at least 0, got " + std::to_string(extent));
    empty = empty || extent == 0;
    // An extent of 0 makes the product 0, but the others have to be sane all the same.
    if (extent > 0 && product > kMost / extent)
      throw Error("[" + where +
                  "] expected a tensor that fits into memory, got a shape of over 2^58 elements");
    if (extent > 0) product *= extent;
  }
  return empty ? 0 : product;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> parts;
  parts.reserve(shape.size());
  for (const std::int64_t d : shape) parts.push_back(std::to_string(d));
  return "[" + join(parts, ", ") + "]";
}

std::uint64_t byte_size(const TensorSpec& tensor) {
  return static_cast<std::uint64_t>(element_count(tensor.shape, escape_control(tensor.name))) *
         dtype_size(tensor.dtype);
}

SafetensorsHeader parse_safetensors_header(std::string_view file_bytes, const std::string& file) {
  const std::string where = escape_control(file);
  if (file_bytes.size() < kLengthBytes) {
    throw Error("[" + where + "] expected a safetensors file, got only " + std::to_string(file_bytes.size()) +
                " bytes; the file is cut");
  }
  const std::uint64_t length = read_length(file_bytes);
  if (length > kMaxSafetensorsHeader) {
    throw Error("[" + where + "] expected a safetensors header of at most " +
                std::to_string(kMaxSafetensorsHeader) + " bytes, got a length of " + std::to_string(length) +
                guess_kind(file_bytes));
  }
  if (length > file_bytes.size() - kLengthBytes) {
    throw Error("[" + where + "] expected a header of " + std::to_string(length) + " bytes, got a file of " +
                std::to_string(file_bytes.size()) + "; the file is cut or no safetensors file");
  }
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + length;
  JsonLimits limits;
  limits.max_depth = 4;
  limits.max_bytes = kMaxSafetensorsHeader;
  const Json json = Json::parse(file_bytes.substr(kLengthBytes, length), where, limits);
  for (const auto& [name, view] : JsonView(json, where).members()) {
    if (name == kMetadata) {
      for (const auto& [key, value] : view.members()) header.metadata[key] = value.as_string();
    } else {
      header.entries.push_back(
          read_entry(name, view, header.data_offset, file_bytes.size() - header.data_offset));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.tensor.name) < std::tie(b.offset, b.bytes, b.tensor.name);
  });
  check_cover(header, file_bytes.size(), where);
  return header;
}

void sort_for_safetensors(std::vector<TensorSpec>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const int rank_a = write_rank(a.dtype);
    const int rank_b = write_rank(b.dtype);
    return std::tie(rank_a, a.name) < std::tie(rank_b, b.name);
  });
}

std::string format_safetensors_header(const std::vector<TensorSpec>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  Json::Object root;
  if (!metadata.empty())
    root.emplace_back(std::string(kMetadata), Json::Object(metadata.begin(), metadata.end()));
  std::set<std::string_view> names{kMetadata};
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw Error("[safetensors] the tensor name '" + escape_control(tensor.name) +
                  "' is taken; expected each name once");
    }
    const std::uint64_t end = offset + byte_size(tensor);
    root.emplace_back(tensor.name,
                      Json(Json::Object{{"dtype", Json(dtype_safetensors_name(tensor.dtype))},
                                        {"shape", Json::Array(tensor.shape.begin(), tensor.shape.end())},
                                        {"data_offsets", Json(Json::Array{Json(offset), Json(end)})}}));
    offset = end;
  }
  std::string json = Json(std::move(root)).dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxSafetensorsHeader) {
    throw Error("[safetensors] expected names of at most 100 MB together, got a header of " +
                std::to_string(json.size()) + " bytes");
  }
  std::string out;
  for (std::size_t i = 0; i < kLengthBytes; ++i) out += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return out + json;
}

}  // namespace lorikeet::io
