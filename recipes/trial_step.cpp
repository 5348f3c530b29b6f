#include "recipes/trial_step.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>

#include "data/micro_batch.h"
#include "nn/batch.h"
#include "plan/micro_size.h"
#include "train/device_batch.h"
#include "train/micro_step.h"

namespace lorikeet::recipes {

bool trial_step(ModelSession& session, const data::TokenDataset& dataset, const data::MicroOptions& options,
                bool checkpointing) {
  const at::Device device = session.torch_device();
  bool passed = true;
  try {
    const auto examples = plan::fullest_micro_batch(dataset, options);
    const nn::Batch batch = train::to_device(data::make_micro_batch(dataset, examples), device);
    const at::Tensor loss = train::run_micro_step(*session.model, batch, {.checkpointing = checkpointing});
    loss.item<double>();  // waits for the device
  } catch (const c10::OutOfMemoryError&) {
    passed = false;
  }
  session.adapters->store().gradients().detach().zero_();
  if (device.is_cuda()) {
    // What a larger trial left behind is cut otherwise than a smaller one needs it.
    if (!passed) {
      at::accelerator::emptyCache();
    } else {
      at::accelerator::resetPeakStats(device.index());
    }
  }
  return passed;
}

}  // namespace lorikeet::recipes
