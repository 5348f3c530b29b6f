#include "peft/adapter_folder.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"

namespace lorikeet::peft {

Json read_adapter_json(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kAdapterConfig;
  if (!std::filesystem::exists(path)) {
    std::error_code ignored;
    const bool unfinished = std::filesystem::is_directory(folder / "checkpoints", ignored);
    throw Error(
        "[adapter] '" + folder.string() + "' has no " + kAdapterConfig + "; expected a PEFT adapter folder" +
        (unfinished ? ": this is an unfinished run, whose checkpoints are such folders (checkpoints/step_N)"
                    : ""));
  }
  return Json::parse(read_file(path, 1U << 20), path.string());
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
