#include "models/quantized_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"
#include "models/tensor_pieces.h"
#include "ops/quantized/quantize.h"

namespace lorikeet::models {
namespace {

using precision::CodeBook;

constexpr std::size_t kMostStateBytes = std::size_t{64} << 10;

const io::TensorView* state_of(const io::Checkpoint& checkpoint, const std::string& name) {
  if (const auto* nf4 = checkpoint.find(name + ".quant_state.bitsandbytes__nf4")) return nf4;
  return checkpoint.find(name + ".quant_state.bitsandbytes__fp4");
}

[[noreturn]] void fail(const std::string& name, const std::string& expected, const std::string& got) {
  throw Error("[checkpoint] quantised tensor '" + escape_control(name) + "': expected " + expected +
              ", got " + got);
}

const io::TensorView& companion(const io::Checkpoint& checkpoint, const std::string& name, DType dtype,
                                std::int64_t elements) {
  const io::TensorView* view = checkpoint.find(name);
  if (view == nullptr) fail(name, "it beside its codes", "no such tensor");
  const auto bytes = static_cast<std::size_t>(elements) * dtype_size(dtype);
  if (view->dtype != dtype || view->bytes.size() != bytes) {
    fail(name, std::to_string(elements) + " of " + std::string(dtype_name(dtype)),
         io::shape_text(view->shape) + " of " + std::string(dtype_name(view->dtype)));
  }
  return *view;
}

std::vector<float> floats_of(const io::TensorView& view) {
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), values.size() * sizeof(float));
  for (const float value : values) {
    if (!std::isfinite(value)) fail(view.name, "finite numbers", std::to_string(value));
  }
  return values;
}

void require_ascending(const io::TensorView& view) {
  const std::vector<float> values = floats_of(view);
  const auto stop = std::adjacent_find(values.begin(), values.end(), [](float a, float b) { return a >= b; });
  if (stop == values.end()) return;
  fail(view.name, "a code book that ascends",
       std::to_string(*stop) + " before " + std::to_string(*(stop + 1)) + " at " +
           std::to_string(stop - values.begin()));
}

/// A tensor with its companions, checked against each other and the shape that the model needs.
struct Quantized {
  Quantized(const nn::WeightSegment& segment, const io::Checkpoint& checkpoint, const io::TensorView& view)
      : quantization(segment.quantized->quantization()),
        layout(segment.shape[0] * segment.shape[1], quantization) {
    const io::TensorView& state = *state_of(checkpoint, view.name);
    require_state(segment, state);
    if (static_cast<std::int64_t>(view.bytes.size()) != layout.codes_bytes) {
      fail(view.name, std::to_string(layout.codes_bytes) + " bytes of codes",
           std::to_string(view.bytes.size()));
    }
    const bool nested = quantization.nested_block != 0;
    const auto& absmax =
        companion(checkpoint, view.name + ".absmax", nested ? DType::kU8 : DType::kF32, layout.blocks);
    const auto& book = companion(checkpoint, view.name + ".quant_map", DType::kF32, 16);
    if (quantization.book == CodeBook::kNF4) {
      require_ascending(book);
    } else {
      floats_of(book);
    }
    parts = {{&view, 0}, {&absmax, layout.scales_begin}, {&book, layout.book_begin}};
    if (!nested) {
      floats_of(absmax);
      return;
    }
    const auto& scales =
        companion(checkpoint, view.name + ".nested_absmax", DType::kF32, layout.nested_blocks);
    floats_of(scales);
    const auto& nested_book = companion(checkpoint, view.name + ".nested_quant_map", DType::kF32, 256);
    require_ascending(nested_book);
    parts.push_back({&scales, layout.nested_scales_begin});
    parts.push_back({&nested_book, layout.nested_book_begin});
  }

  precision::Quantization quantization;
  ops::QuantizedLayout layout;
  struct Part {
    const io::TensorView* view;
    std::int64_t begin;  // in the stored bytes
  };
  std::vector<Part> parts;
  float offset = 0;

 private:
  void require_state(const nn::WeightSegment& segment, const io::TensorView& view) {
    if (view.dtype != DType::kU8 || view.bytes.size() > kMostStateBytes)
      fail(view.name, "a JSON object as uint8", io::shape_text(view.shape));
    const Json json = Json::parse(view.bytes, "[checkpoint] quantised tensor '" + view.name + "'");
    const JsonView state(json, "checkpoint] quantised tensor '" + view.name + "'");
    const std::string kind = state.at("quant_type").as_string();
    const std::string wanted = quantization.book == CodeBook::kNF4 ? "nf4" : "fp4";
    if (kind != wanted || !view.name.ends_with("__" + kind)) fail(view.name, wanted, "'" + kind + "'");
    std::vector<std::int64_t> shape;
    for (const JsonView& extent : state.at("shape").items()) shape.push_back(extent.as_int());
    if (shape != segment.shape)
      fail(view.name, "the shape " + io::shape_text(segment.shape), io::shape_text(shape));
    require_equal(state, "blocksize", quantization.block, view.name);
    const bool nested = state.has("nested_blocksize");
    if (nested != (quantization.nested_block != 0)) {
      fail(view.name, nested ? "scales in fp32, as config.json says" : "nested scales, as config.json says",
           nested ? "nested ones" : "fp32 ones");
    }
    if (!nested) return;
    require_equal(state, "nested_blocksize", quantization.nested_block, view.name);
    offset = static_cast<float>(state.at("nested_offset").as_number());
    if (!std::isfinite(offset)) fail(view.name, "a finite nested_offset", std::to_string(offset));
  }

  static void require_equal(const JsonView& state, const std::string& key, std::int64_t wanted,
                            const std::string& name) {
    const std::int64_t value = state.at(key).as_int();
    if (value != wanted) fail(name, key + " " + std::to_string(wanted), std::to_string(value));
  }
};

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

at::Tensor bytes_of(std::string_view bytes) {
  std::vector<char> unused;  // bytes are always aligned
  return flat_tensor(DType::kU8, bytes, &unused);
}

at::Tensor offset_bytes(const float& offset) {
  return bytes_of({reinterpret_cast<const char*>(&offset), sizeof(offset)});
}

}  // namespace

std::optional<precision::Quantization> quantization_in_config(const JsonView& config) {
  const auto settings = config.maybe("quantization_config");
  if (!settings) return std::nullopt;
  const std::string method = settings->get_string("quant_method", "");
  if (method != "bitsandbytes" || !settings->get_bool("load_in_4bit", false)) {
    throw Error("[" + settings->where() +
                "] expected a base of at least 16 bits, or in bitsandbytes' 4 bits, got quant_method '" +
                escape_control(method) + "'" + (method == "bitsandbytes" ? " in 8 bits" : "") +
                "; choose the model's unquantised checkpoint");
  }
  const std::string book = settings->get_string("bnb_4bit_quant_type", "fp4");
  if (book != "nf4" && book != "fp4") settings->at("bnb_4bit_quant_type").fail("nf4 or fp4");
  return precision::Quantization{
      .book = book == "nf4" ? CodeBook::kNF4 : CodeBook::kFP4,
      .nested_block = settings->get_bool("bnb_4bit_use_double_quant", false) ? 256 : 0};
}

bool is_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view) {
  return state_of(checkpoint, view.name) != nullptr;
}

bool has_quantized(const io::Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) {
    return entry.first.find(".quant_state.bitsandbytes__") != std::string::npos;
  });
}

std::vector<const io::TensorView*> quantization_tensors(const io::Checkpoint& checkpoint,
                                                        const io::TensorView& view) {
  std::vector<const io::TensorView*> found;
  const io::TensorView* state = state_of(checkpoint, view.name);
  if (state == nullptr) return found;
  found.push_back(state);
  for (const char* name : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    if (const auto* tensor = checkpoint.find(view.name + name)) found.push_back(tensor);
  }
  return found;
}

std::string quantized_mismatch(const nn::WeightSegment& segment, const io::Checkpoint& checkpoint,
                               const io::TensorView& view) {
  if (segment.quantized == nullptr)
    return segment.name + ": expected at least 16 bits, got bitsandbytes' 4 bits";
  const Quantized checked(segment, checkpoint, view);
  return "";
}

void copy_quantized(const io::Checkpoint& checkpoint, const io::TensorView& view,
                    const nn::WeightSegment& segment, const nn::WeightUnit::Held& held,
                    const nn::WeightShard& shard, StagedUpload& upload, WeightDigests* digests) {
  const Quantized tensor(segment, checkpoint, view);
  if (digests != nullptr) {
    // The codes by the model's name, as weights have it, companions by their own. One process adds them:
    // they are a quarter of the weight.
    const auto add = [&](const io::TensorView& part, const std::string& name) {
      io::TensorDigest& digest = (*digests)[name];
      if (shard.rank != 0) return;
      digest.add_header(part);
      add_blocks(part, 0, part.bytes.size(), &digest);
    };
    add(view, segment.name);
    for (const io::TensorView* part : quantization_tensors(checkpoint, view)) add(*part, part->name);
  }
  if (held.values.defined()) {
    HeldBytes out(held, upload);
    for (const Quantized::Part& part : tensor.parts) {
      for (std::size_t at = 0; at < part.view->bytes.size(); at += kPieceBytes) {
        io::TensorView piece = *part.view;
        piece.bytes = part.view->bytes.substr(at, kPieceBytes);
        out.write(part.begin + static_cast<std::int64_t>(at), bytes_of(piece.bytes));
        checkpoint.drop_pages(piece);
      }
    }
    if (tensor.quantization.nested_block != 0)
      out.write(tensor.layout.offset_begin, offset_bytes(tensor.offset));
  }
}

void quantize_weight(const io::Checkpoint& checkpoint, const io::TensorView& view,
                     const nn::WeightSegment& segment, const nn::WeightUnit::Held& held, StagedUpload& upload,
                     io::TensorDigest* digest) {
  if (!held.values.defined()) return;
  const std::int64_t elements = segment.shape[0] * segment.shape[1];
  ops::Quantizer quantizer(elements, segment.quantized->quantization());
  HeldBytes out(held, upload);
  // Processes hash in proportion to what they hold: their shares adjoin as what they hold does.
  const std::size_t total = view.bytes.size();
  const auto share = [&](std::int64_t stored) {
    return static_cast<std::size_t>(static_cast<double>(total) * static_cast<double>(stored) /
                                    static_cast<double>(quantizer.layout().bytes));
  };
  const std::size_t hash_from = share(held.first), hash_to = share(held.first + held.values.numel());
  std::vector<char> scratch;
  for (std::size_t begin = 0; begin < total; begin += kPieceBytes) {
    io::TensorView piece = view;
    piece.bytes = view.bytes.substr(begin, kPieceBytes);
    const std::size_t end = begin + piece.bytes.size();
    if (digest != nullptr && std::max(begin, hash_from) < std::min(end, hash_to))
      add_blocks(view, std::max(begin, hash_from), std::min(end, hash_to), digest);
    const at::Tensor values = flat_tensor(view.dtype, piece.bytes, &scratch).to(at::kFloat);
    out.write(static_cast<std::int64_t>(begin / dtype_size(view.dtype) / 2), quantizer.add(values));
    checkpoint.drop_pages(piece);
  }
  if (quantizer.has_non_finite())
    fail(view.name, "finite numbers", "NaN or infinity; its scales would be so too");
  out.write(quantizer.layout().scales_begin, quantizer.finish());
}

}  // namespace lorikeet::models
