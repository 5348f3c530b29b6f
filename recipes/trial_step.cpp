#include "recipes/trial_step.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include "comm/reason.h"
#include "data/micro_batch.h"
#include "nn/batch.h"
#include "ops/out_of_memory.h"
#include "plan/micro_size.h"
#include "train/device_batch.h"
#include "train/micro_step.h"

namespace lorikeet::recipes {

bool trial_step(ModelSession& session, const data::TokenDataset& dataset, const data::MicroOptions& options,
                const config::MemorySaving& saving, std::int64_t graphs_bytes,
                parallel::UnitPrefetcher* prefetcher, comm::Communicator* group) {
  const at::Device device = session.torch_device();
  const nn::CausalLM& model = *session.model;
  model.store().expect(
      model.units_in_order(/*training=*/true));  // what finish_pass goes by, wherever memory ends
  bool passed = true;
  try {
    const at::Tensor graphs = graphs_bytes > 0
                                  ? at::empty({graphs_bytes}, at::TensorOptions(device).dtype(at::kByte))
                                  : at::Tensor();
    const auto examples = plan::fullest_micro_batch(dataset, options);
    const nn::Batch batch = train::to_device(data::make_micro_batch(dataset, examples), device);
    const at::Tensor loss = train::run_micro_step(model, batch, {.saving = saving});
    comm::while_waiting(group, [&] { loss.item<double>(); });
  } catch (const std::exception& error) {
    // A group whose NCCL has failed serves no other trial.
    if (comm::is_nccl_out_of_memory(error) || !ops::is_out_of_memory(error)) throw;
    passed = false;
  }
  // What a larger trial left behind is cut otherwise than a smaller one needs it.
  if ((!passed || graphs_bytes > 0) && device.is_cuda()) at::accelerator::emptyCache();
  if (!passed && prefetcher != nullptr) prefetcher->finish_pass();
  session.adapters->store().gradients().zero_();
  if (passed && device.is_cuda()) at::accelerator::resetPeakStats(device.index());
  return passed;
}

}  // namespace lorikeet::recipes
