#include "models/quantized_weights.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/expert_stacks.h"
#include "models/quantization_state.h"
#include "models/stored_matrix.h"
#include "models/tensor_pieces.h"
#include "ops/quantized/quantize.h"

namespace lorikeet::models {
namespace {

using precision::Float8;
using precision::FourBits;

bool is_float8(const io::TensorView& view) { return view.dtype == DType::kF8E4M3; }

// Of a quantised tensor.
std::string kind_of(const io::Checkpoint& checkpoint, const io::TensorView& view) {
  if (is_float8(view)) return "fp8";
  return mxfp4_scales(checkpoint, view.name) != nullptr ? "mxfp4" : "bitsandbytes' 4 bits";
}

StoredMatrix read_stored(const io::Checkpoint& checkpoint, const io::TensorView& view,
                         const std::vector<std::int64_t>& shape,
                         const precision::Quantization& quantization) {
  if (const auto* four_bits = std::get_if<FourBits>(&quantization)) {
    if (is_float8(view)) fail_quantized(view.name, describe(quantization), "fp8");
    if (*four_bits == precision::kMxfp4) return read_mxfp4(checkpoint, view, shape, *four_bits);
    if (mxfp4_scales(checkpoint, view.name) != nullptr)
      fail_quantized(view.name, describe(quantization), "mxfp4");
    return read_four_bits(checkpoint, view, shape, *four_bits);
  }
  if (!is_float8(view)) fail_quantized(view.name, describe(quantization), kind_of(checkpoint, view));
  return read_float8(checkpoint, view, shape, std::get<Float8>(quantization));
}

// What is held of a segment's stored bytes.
class HeldBytes {
 public:
  HeldBytes(const nn::WeightUnit::Held& held, StagedUpload& upload) : held_(held), upload_(upload) {}

  /// Writes what is held of bytes that begin at `begin` of the segment's.
  void write(std::int64_t begin, const at::Tensor& bytes) {
    const std::int64_t from = std::max(begin, held_.first);
    const std::int64_t to = std::min(begin + bytes.numel(), held_.first + held_.values.numel());
    if (from >= to) return;
    upload_.copy(held_.values.slice(0, from - held_.first, to - held_.first),
                 bytes.slice(0, from - begin, to - begin));
  }

 private:
  const nn::WeightUnit::Held& held_;
  StagedUpload& upload_;
};

void copy_stored(const io::Checkpoint& checkpoint, const StoredMatrix& stored, HeldBytes out) {
  std::vector<char> unused;  // bytes are always aligned
  for (const StoredMatrix::Copied& part : stored.copied) {
    at::Tensor copy;
    const io::TensorView whole = dense_view(*part.view, &copy);
    for (std::size_t at = 0; at < whole.bytes.size(); at += kPieceBytes) {
      io::TensorView piece = whole;
      piece.bytes = whole.bytes.substr(at, kPieceBytes);
      if (is_float8(piece)) require_float8_numbers(piece);
      at::Tensor bytes = flat_tensor(DType::kU8, piece.bytes, &unused);
      if (part.low_bits_first) bytes = bytes.bitwise_left_shift(4).bitwise_or_(bytes.bitwise_right_shift(4));
      out.write(part.begin + static_cast<std::int64_t>(at), bytes);
      checkpoint.drop_pages(piece);
    }
    if (copy.defined()) checkpoint.drop_pages(*part.view);
  }
  for (const StoredMatrix::Made& part : stored.made) out.write(part.begin, part.bytes);
}

}  // namespace

bool is_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view) {
  return is_float8(view) || four_bit_state(checkpoint, view.name) != nullptr ||
         mxfp4_scales(checkpoint, view.name) != nullptr;
}

bool has_quantized(const io::Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  const auto& parts = checkpoint.parts();
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const auto& entry) { return is_quantized(checkpoint, *entry.second); }) ||
         std::any_of(parts.begin(), parts.end(),
                     [&](const auto& entry) { return is_quantized(checkpoint, entry.second); });
}

std::vector<const io::TensorView*> quantization_tensors(const io::Checkpoint& checkpoint,
                                                        const io::TensorView& view) {
  if (!is_quantized(checkpoint, view)) return {};
  if (is_float8(view)) return float8_companions(checkpoint, view);
  if (const auto* scales = mxfp4_scales(checkpoint, view.name)) return {scales};
  return four_bit_companions(checkpoint, view);
}

std::string quantized_mismatch(const nn::WeightSegment& segment, const io::Checkpoint& checkpoint,
                               const io::TensorView& view) {
  const ops::QuantizedFormat* format =
      segment.quantized != nullptr ? segment.quantized : segment.decoded_from;
  if (format == nullptr) {
    return segment.name + ": expected at least 16 bits, got " + kind_of(checkpoint, view);
  }
  read_stored(checkpoint, view, segment.shape, format->quantization());
  return "";
}

void digest_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                      const nn::WeightSegment& segment, const nn::WeightShard& shard,
                      WeightDigests& digests) {
  // The codes by the model's name, as weights have it, companions by their own. One process adds them: they
  // are at most half of the weight.
  const auto add = [&](const io::TensorView& part, const std::string& name) {
    io::TensorDigest& digest = digests[name];
    if (shard.rank != 0) return;
    at::Tensor copy;
    const io::TensorView dense = dense_view(part, &copy);
    digest.add_header(dense);
    add_blocks(dense, 0, dense.bytes.size(), &digest);
  };
  add(view, segment.name);
  for (const io::TensorView* part : quantization_tensors(checkpoint, view)) add(*part, part->name);
}

void copy_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                    const nn::WeightSegment& segment, const nn::WeightUnit::Held& held,
                    const nn::WeightShard& shard, StagedUpload& upload, WeightDigests* digests) {
  const StoredMatrix stored = read_stored(checkpoint, view, segment.shape, segment.quantized->quantization());
  if (digests != nullptr) digest_quantized(checkpoint, view, segment, shard, *digests);
  if (held.values.defined()) copy_stored(checkpoint, stored, {held, upload});
}

std::vector<std::int64_t> quantized_shape(const io::Checkpoint& checkpoint, const io::TensorView& view) {
  if (is_float8(view)) return view.shape;
  if (mxfp4_scales(checkpoint, view.name) != nullptr) return {view.shape.at(0), 2 * view.shape.at(1)};
  return four_bit_shape(checkpoint, view);
}

at::Tensor dequantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                       const precision::Quantization& quantization) {
  const auto shape = quantized_shape(checkpoint, view);
  if (shape.size() != 2) fail_quantized(view.name, "a matrix", io::shape_text(shape));
  const StoredMatrix stored = read_stored(checkpoint, view, shape, quantization);
  const ops::QuantizedFormat& format = ops::quantized_format(quantization);
  const nn::WeightUnit::Held all{.values = at::zeros({format.bytes(shape[0], shape[1])}, at::kByte)};
  StagedUpload direct;
  copy_stored(checkpoint, stored, {all, direct});
  const std::vector<ops::MatrixPart> whole{{.rows = shape[0], .runs = {{0, 0, shape[0]}}}};
  return ops::FrozenMatrix{&format, all.values, shape[0], shape[1],
                           std::make_shared<const std::vector<ops::MatrixPart>>(whole)}
      .dense(at::kFloat);
}

void quantize_weight(const io::Checkpoint& checkpoint, const io::TensorView& view,
                     const nn::WeightSegment& segment, const nn::WeightUnit::Held& held, StagedUpload& upload,
                     io::TensorDigest* digest) {
  if (!held.values.defined()) return;
  const auto quantizer =
      ops::make_quantizer(segment.shape[0], segment.shape[1], segment.quantized->quantization());
  HeldBytes out(held, upload);
  // Processes hash in proportion to what they hold: their shares adjoin as what they hold does.
  const std::size_t total = view.bytes.size();
  const auto share = [&](std::int64_t stored) {
    return static_cast<std::size_t>(static_cast<double>(total) * static_cast<double>(stored) /
                                    static_cast<double>(quantizer->bytes()));
  };
  const std::size_t hash_from = share(held.first), hash_to = share(held.first + held.values.numel());
  const std::size_t element = dtype_size(view.dtype);
  const std::size_t unit = static_cast<std::size_t>(quantizer->unit()) * element;
  const std::size_t piece_bytes = std::max<std::size_t>(1, kPieceBytes / unit) * unit;
  std::vector<char> scratch;
  for (std::size_t begin = 0; begin < total; begin += piece_bytes) {
    io::TensorView piece = view;
    piece.bytes = view.bytes.substr(begin, piece_bytes);
    const std::size_t end = begin + piece.bytes.size();
    if (digest != nullptr && std::max(begin, hash_from) < std::min(end, hash_to))
      add_blocks(view, std::max(begin, hash_from), std::min(end, hash_to), digest);
    const at::Tensor values = flat_tensor(view.dtype, piece.bytes, &scratch).to(at::kFloat);
    out.write(quantizer->code_begin(static_cast<std::int64_t>(begin / element)), quantizer->add(values));
    checkpoint.drop_pages(piece);
  }
  if (quantizer->has_non_finite())
    fail_quantized(view.name, "finite numbers", "NaN or infinity; its scales would be so too");
  out.write(quantizer->rest_begin(), quantizer->finish());
}

}  // namespace lorikeet::models
