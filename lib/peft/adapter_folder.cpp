#include "peft/adapter_folder.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "io/step_folder.h"

namespace lorikeet::peft {

Json read_adapter_json(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kAdapterConfig;
  if (!std::filesystem::exists(path)) {
    std::error_code ignored;
    const bool unfinished = std::filesystem::is_directory(folder / io::kCheckpointsFolder, ignored);
    throw Error(
        "[adapter] '" + folder.string() + "' has no " + kAdapterConfig + "; expected a PEFT adapter folder" +
        (unfinished ? ": this is an unfinished run, whose checkpoints are such folders (checkpoints/step_N)"
                    : ""));
  }
  return Json::parse(read_file(path, 1U << 20), path.string());
}

io::SafetensorsFile open_adapter_tensors(const std::filesystem::path& folder) {
  constexpr const char* kPickle = "adapter_model.bin";
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kAdapterTensors, ignored) &&
      std::filesystem::exists(folder / kPickle, ignored)) {
    throw Error("[adapter] '" + escape_control(folder.string()) + "' has " + kPickle + ", expected " +
                kAdapterTensors +
                ": a file of torch.save isn't read here; write it anew by PEFT's save_pretrained, or in that "
                "folder by safetensors.torch.save_file(torch.load('" +
                kPickle + "', weights_only=True), '" + kAdapterTensors + "', {'format': 'pt'})");
  }
  return io::SafetensorsFile::open(folder / kAdapterTensors);
}

void require_finite(const at::Tensor& value, const std::string& name, const std::filesystem::path& file) {
  if (at::isfinite(value).all().item<bool>()) return;
  throw Error(
      escape_control("[" + file.string() + "] expected finite values, tensor '" + name +
                     "' has some that are NaN or infinite; the training that wrote it diverged, or the "
                     "file is damaged: take another adapter"),
      ErrorKind::kRunFailed);
}

}  // namespace lorikeet::peft
