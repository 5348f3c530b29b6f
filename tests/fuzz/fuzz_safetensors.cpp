// Any bytes as a safetensors file: of what is accepted, every tensor lies inside the file, has the size that
// its shape says, and all of them together cover the data; and writing the header anew gives a file that is
// accepted.
#include "fuzz.h"
#include "io/safetensors_header.h"

using namespace lorikeet;
using namespace lorikeet::io;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto header =
      fuzz::accepted([&] { return parse_safetensors_header(fuzz::view(data, size), "input"); });
  if (!header) return 0;
  std::uint64_t position = header->data_offset;
  std::vector<TensorSpec> tensors;
  for (const SafetensorsHeader::Entry& entry : header->entries) {
    fuzz::require(entry.offset == position && entry.bytes <= size - position);
    fuzz::require(entry.bytes == byte_size(entry.tensor));
    position += entry.bytes;
    tensors.push_back(entry.tensor);
  }
  fuzz::require(position == size);

  const auto written = fuzz::accepted([&] { return format_safetensors_header(tensors, header->metadata); });
  fuzz::require(written.has_value());
  const std::string copy = *written + std::string(fuzz::view(data, size).substr(header->data_offset));
  const SafetensorsHeader again = parse_safetensors_header(copy, "copy");
  fuzz::require(again.entries.size() == header->entries.size() && again.metadata == header->metadata);
  return 0;
}
