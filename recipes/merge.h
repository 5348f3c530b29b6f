#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "device/device.h"

namespace lorikeet::recipes {

/// What a merge changed, measured on a fixed probe of 64 tokens in fp32.
struct MergeReport {
  std::size_t merged_tensors = 0;
  double largest_logit_change = 0;    ///< base with adapter against the merged checkpoint: rounding only
  double largest_adapter_effect = 0;  ///< base alone against base with adapter: what the adapter does
};

/// Writes a full checkpoint to `output` (new or empty): the base of `model` with W + scale * B A in every
/// adapted weight. The base is read from disk at its own precision, the sum computed in fp32 and stored in
/// the base's dtype, in the same shards; a base that is quantised becomes one of plain numbers in the dtype
/// of its embedding, and is never quantised again. All other files are copied, the tokenizer's with the chat
/// template that the adapter was trained with where that is known, and a record of the adapter is written
/// (merge_record.h). The base is held in the memory of `device` in its own 16-bit numbers, else in fp32.
/// Throws Error, and leaves nothing, when something doesn't fit, a value would not be finite, or an
/// InterruptGuard was asked to end (kInterrupted).
MergeReport merge(const std::filesystem::path& model, const std::filesystem::path& adapter,
                  const std::filesystem::path& output, const device::Device& device);

/// Whether `folder` is a whole checkpoint, as `merge` writes one.
bool is_merged(const std::filesystem::path& folder);

/// Merges the adapter of a run that is finished, whatever comes of it, into its folder `merged`, on the CPU:
/// it takes the base's size of main memory, in which a run on a GPU has room, once what the run on
/// `trained_on` kept there is given back. Throws Error (kRunFailed) that says how to try again, and
/// (kInterrupted) likewise once an InterruptGuard was asked to end.
void merge_finished_run(const std::filesystem::path& base, const std::filesystem::path& run,
                        const at::Device& trained_on);

}  // namespace lorikeet::recipes
