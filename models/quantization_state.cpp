#include "models/quantization_state.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::models {
namespace {

using precision::CodeBook;

constexpr std::size_t kMostBytes = std::size_t{64} << 10;
constexpr std::int64_t kMostElements = std::int64_t{1} << 48, kLargestBlock = std::int64_t{1} << 20;

std::int64_t block_in(const JsonView& state, const std::string& key, const std::string& name) {
  const std::int64_t block = state.at(key).as_int();
  if (block < 1 || block > kLargestBlock) fail_quantized(name, "a possible " + key, std::to_string(block));
  return block;
}

std::vector<std::int64_t> shape_in(const JsonView& state, const std::string& name) {
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (const JsonView& extent : state.at("shape").items()) {
    const std::int64_t size = extent.as_int();
    if (size < 1 || size > kMostElements / elements)
      fail_quantized(name, "a possible shape", std::to_string(size));
    elements *= size;
    shape.push_back(size);
  }
  if (shape.size() != 2)
    fail_quantized(name, "the shape of a matrix", std::to_string(shape.size()) + " extents");
  return shape;
}

}  // namespace

void fail_quantized(const std::string& name, const std::string& expected, const std::string& got) {
  throw Error("[checkpoint] quantised tensor '" + escape_control(name) + "': expected " +
              escape_control(expected) + ", got " + escape_control(got));
}

QuantizationState parse_quantization_state(std::string_view bytes, const std::string& name) {
  if (bytes.size() > kMostBytes)
    fail_quantized(name, "a JSON object as uint8", std::to_string(bytes.size()) + " bytes");
  const std::string where = "checkpoint] quantised tensor '" + escape_control(name) + "'";
  const Json json = Json::parse(bytes, "[" + where);
  const JsonView view(json, where);
  QuantizationState state;
  const std::string kind = view.at("quant_type").as_string();
  if ((kind != "nf4" && kind != "fp4") || !name.ends_with("__" + kind))
    fail_quantized(name, "quant_type nf4 or fp4, as the tensor's name says", "'" + kind + "'");
  state.quantization.book = kind == "nf4" ? CodeBook::kNF4 : CodeBook::kFP4;
  state.quantization.block = block_in(view, "blocksize", name);
  state.shape = shape_in(view, name);
  state.quantization.nested_block = 0;
  if (!view.has("nested_blocksize")) return state;
  state.quantization.nested_block = block_in(view, "nested_blocksize", name);
  const double offset = view.at("nested_offset").as_number();
  if (!(std::abs(offset) <= 3e38)) fail_quantized(name, "a finite nested_offset", std::to_string(offset));
  state.offset = static_cast<float>(offset);
  return state;
}

}  // namespace lorikeet::models
