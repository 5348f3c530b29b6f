#include "models/written_state.h"

#include <ATen/ATen.h>

#include <vector>

#include "io/safetensors_writer.h"
#include "ops/dtype.h"

namespace lorikeet::test {

io::Checkpoint written(const TemporaryFolder& folder, const State& state) {
  const std::filesystem::path path = folder / "model.safetensors";
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, tensor] : state)
    specs.push_back({name, ops::from_torch(tensor.scalar_type()), tensor.sizes().vec()});
  io::SafetensorsWriter writer(path, specs, {});
  for (const io::TensorSpec& spec : writer.order()) {
    const at::Tensor tensor = state.at(spec.name).contiguous();
    writer.write({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  writer.finish();
  return io::Checkpoint::open(folder.path());
}

}  // namespace lorikeet::test
