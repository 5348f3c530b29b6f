// Any bytes as a file of torch.save: it is refused, or its tensors lie inside of it.
#include "fuzz.h"
#include "io/torch_archive.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepted([&] {
    const auto archive = io::TorchArchive::from_bytes(std::string(fuzz::view(data, size)), "input");
    for (const io::TensorView& tensor : archive.tensors()) {
      std::uint64_t bytes = dtype_size(tensor.dtype);
      for (const std::int64_t length : tensor.shape) bytes *= static_cast<std::uint64_t>(length);
      fuzz::require(bytes == tensor.bytes.size());
    }
    return 0;
  });
  return 0;
}
