#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "models/fingerprint.h"
#include "models/staged_upload.h"
#include "nn/weights.h"
#include "precision/quantization.h"

// Quantised weights: made of a checkpoint's numbers while it is loaded, or read from a checkpoint that has
// them (models/stored_matrix.h says which).
namespace lorikeet::models {

/// Whether this tensor is quantised.
bool is_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view);

/// Whether any tensor of a checkpoint is.
bool has_quantized(const io::Checkpoint& checkpoint);

/// The tensors that belong to a quantised one; none where it isn't.
std::vector<const io::TensorView*> quantization_tensors(const io::Checkpoint& checkpoint,
                                                        const io::TensorView& view);

/// "name: expected ..., got ...", or "" where a quantised tensor, with all its companions, is the segment's:
/// shape, kind, lengths, and books and scales whose numbers are possible.
std::string quantized_mismatch(const nn::WeightSegment& segment, const io::Checkpoint& checkpoint,
                               const io::TensorView& view);

/// Adds digests of a quantised tensor and its companions to `digests`, each on one of the processes that
/// share a copy.
void digest_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                      const nn::WeightSegment& segment, const nn::WeightShard& shard, WeightDigests& digests);

/// Copies what is held of a quantised tensor that is the segment's. Adds digests of the tensor and its
/// companions to `digests` unless it is null, each on one of the processes that share a copy.
void copy_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                    const nn::WeightSegment& segment, const nn::WeightUnit::Held& held,
                    const nn::WeightShard& shard, StagedUpload& upload, WeightDigests* digests);

/// The shape of a quantised tensor, before anything is checked against a model.
std::vector<std::int64_t> quantized_shape(const io::Checkpoint& checkpoint, const io::TensorView& view);

/// The numbers of a tensor that is quantised so, fp32, on the CPU. Throws Error as quantized_mismatch does.
at::Tensor dequantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                       const precision::Quantization& quantization);

/// Quantises a tensor of numbers into what is held of the segment, piece by piece. Scales lie behind all
/// codes, and those of nf4 come from the whole tensor: every process that holds some of it reads all of it.
/// Adds to `digest` unless it is null the blocks that are this process's. Throws Error for NaN and
/// infinities.
void quantize_weight(const io::Checkpoint& checkpoint, const io::TensorView& view,
                     const nn::WeightSegment& segment, const nn::WeightUnit::Held& held, StagedUpload& upload,
                     io::TensorDigest* digest);

}  // namespace lorikeet::models
