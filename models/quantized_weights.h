#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/checkpoint.h"
#include "models/fingerprint.h"
#include "models/staged_upload.h"
#include "nn/weights.h"
#include "precision/quantization.h"

// Quantised weights: made of a checkpoint's numbers while it is loaded, or read from one that bitsandbytes
// wrote. There `NAME` (the codes) has companions: NAME.absmax (the scales), NAME.quant_map (the code book),
// NAME.nested_absmax and NAME.nested_quant_map where scales are quantised, and
// NAME.quant_state.bitsandbytes__nf4 or __fp4, a JSON object as uint8. Format: bitsandbytes' QuantState.
namespace lorikeet::models {

/// How config.json says that linear modules are quantised in the checkpoint; nullopt where it says nothing.
/// Throws Error for anything but bitsandbytes' 4 bits.
std::optional<precision::Quantization> quantization_in_config(const JsonView& config);

/// Whether bitsandbytes quantised this tensor.
bool is_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view);

/// Whether bitsandbytes quantised any tensor of a checkpoint.
bool has_quantized(const io::Checkpoint& checkpoint);

/// The companions of a tensor that are there; none where it isn't quantised.
std::vector<const io::TensorView*> quantization_tensors(const io::Checkpoint& checkpoint,
                                                        const io::TensorView& view);

/// "name: expected ..., got ...", or "" where a tensor that bitsandbytes quantised, with all its companions,
/// is the segment's: shape, kind, lengths, and books and scales whose numbers are possible.
std::string quantized_mismatch(const nn::WeightSegment& segment, const io::Checkpoint& checkpoint,
                               const io::TensorView& view);

/// Copies what is held of a tensor that bitsandbytes quantised and that is the segment's. Adds digests of the
/// tensor and its companions to `digests` unless it is null, each on one of the processes that share a copy.
void copy_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                    const nn::WeightSegment& segment, const nn::WeightUnit::Held& held,
                    const nn::WeightShard& shard, StagedUpload& upload, WeightDigests* digests);

/// Quantises a tensor of numbers into what is held of the segment, piece by piece. Scales of scales come from
/// the whole tensor: every process that holds some of it reads all of it. Adds to `digest` unless it is null
/// the blocks that are this process's. Throws Error for NaN and infinities.
void quantize_weight(const io::Checkpoint& checkpoint, const io::TensorView& view,
                     const nn::WeightSegment& segment, const nn::WeightUnit::Held& held, StagedUpload& upload,
                     io::TensorDigest* digest);

}  // namespace lorikeet::models
