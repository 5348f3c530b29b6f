#include "models/quantization_config.h"

#include <string>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::models {
namespace {

using precision::CodeBook;
using precision::Float8;
using precision::FourBits;

constexpr std::int64_t kLargestBlock = std::int64_t{1} << 20;

[[noreturn]] void refuse(const JsonView& settings, const std::string& got) {
  throw Error("[" + settings.where() +
              "] expected a base of at least 16 bits, in bitsandbytes' 4 bits, or in fp8 (methods fp8, "
              "fbgemm_fp8, compressed-tensors), or with experts in mxfp4, got " +
              escape_control(got) + "; choose the model's unquantised checkpoint");
}

FourBits bitsandbytes(const JsonView& settings) {
  if (!settings.get_bool("load_in_4bit", false)) refuse(settings, "quant_method 'bitsandbytes' in 8 bits");
  const std::string book = settings.get_string("bnb_4bit_quant_type", "fp4");
  if (book != "nf4" && book != "fp4") settings.at("bnb_4bit_quant_type").fail("nf4 or fp4");
  return {.book = book == "nf4" ? CodeBook::kNF4 : CodeBook::kFP4,
          .nested_block = settings.get_bool("bnb_4bit_use_double_quant", false) ? 256 : 0};
}

// [rows, columns]
Float8 blocks(const JsonView& extents) {
  const auto items = extents.items();
  if (items.size() != 2) extents.fail("two extents of a block, [rows, columns]");
  const auto extent = [](const JsonView& value) {
    const std::int64_t size = value.as_int();
    if (size < 1 || size > kLargestBlock) value.fail("a possible extent of a block");
    return size;
  };
  return {.block_rows = extent(items[0]), .block_cols = extent(items[1])};
}

Float8 finegrained(const JsonView& settings) {
  // Old writers (AutoFP8) name the format "fp8" too, with a scale for each matrix and no blocks.
  const std::string format = settings.get_string("fmt", "e4m3");
  if (format != "e4m3") settings.at("fmt").fail("e4m3");
  if (const auto extents = settings.maybe("weight_block_size")) return blocks(*extents);
  return {.block_rows = 0, .block_cols = 0};
}

Float8 compressed_weights(const JsonView& settings, const JsonView& weights) {
  const std::string type = weights.get_string("type", "int");
  const std::int64_t bits = weights.at("num_bits").as_int();
  if (type != "float" || bits != 8)
    refuse(settings, "compressed-tensors in " + std::to_string(bits) + " bits of type '" + type + "'");
  if (!weights.get_bool("symmetric", true)) weights.at("symmetric").fail("true");
  const std::string strategy = weights.get_string("strategy", "tensor");
  if (strategy == "tensor") return {.block_rows = 0, .block_cols = 0};
  if (strategy == "channel") return {.block_rows = 1, .block_cols = 0};
  if (strategy == "block") return blocks(weights.at("block_structure"));
  weights.at("strategy").fail("tensor, channel or block");
}

Float8 compressed_tensors(const JsonView& settings) {
  std::optional<Float8> all;
  for (const auto& [name, group] : settings.at("config_groups").members()) {
    const auto weights = group.maybe("weights");
    if (!weights) continue;
    const Float8 found = compressed_weights(settings, *weights);
    if (all && !(*all == found)) group.fail("weights quantised as in the other groups");
    all = found;
  }
  if (!all) refuse(settings, "compressed-tensors without quantised weights");
  return *all;
}

}  // namespace

std::optional<precision::Quantization> quantization_in_config(const JsonView& config) {
  const auto settings = config.maybe("quantization_config");
  if (!settings) return std::nullopt;
  const std::string method = settings->get_string("quant_method", "");
  if (method == "bitsandbytes") return bitsandbytes(*settings);
  if (method == "fp8") return finegrained(*settings);
  if (method == "fbgemm_fp8") return Float8{};
  if (method == "mxfp4") return precision::kMxfp4;
  if (method == "compressed-tensors") return compressed_tensors(*settings);
  refuse(*settings, "quant_method '" + method + "'");
}

}  // namespace lorikeet::models
