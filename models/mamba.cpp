#include "models/mamba.h"

#include <string>
#include <vector>

namespace lorikeet::models {
namespace {

// What a head's steps are limited to: [0, infinity], which transformers writes as an object, or null.
void require_no_limit(ConfigReader& config) {
  constexpr const char* kKey = "time_step_limit";
  if (!config.has(kKey)) return;
  const std::vector<JsonView> limits = config.view().at(kKey).items();
  const auto infinite = [](const Json& value) {
    const Json* number = value.find("__float__");
    return number != nullptr && number->is_string() && number->string() == "Infinity";
  };
  if (limits.size() == 2 && limits[0].as_number() == 0 && infinite(limits[1].json())) return;
  config.fail(kKey, "expected null or [0, infinity]: limits of the steps are not built");
}

// inner_width / heads; a file may say "auto" for it.
std::int64_t read_head_dim(ConfigReader& config, std::int64_t inner_width, std::int64_t heads) {
  constexpr const char* kKey = "mamba_d_head";
  const std::string widths = "mamba_expand * hidden_size = " + std::to_string(inner_width);
  if (inner_width % heads != 0)
    config.contradiction("mamba_n_heads " + std::to_string(heads) + " doesn't divide " + widths);
  const std::int64_t implied = inner_width / heads;
  if (!config.has(kKey) || config.view().at(kKey).json().is_string()) {
    config.choice(kKey, "auto", {"auto"});
    return implied;
  }
  const std::int64_t written = config.size(kKey, kLargestWidth);
  if (written != implied) {
    config.fail(kKey, "expected " + std::to_string(implied) + ", with which mamba_n_heads " +
                          std::to_string(heads) + " are " + widths + " wide, got " + std::to_string(written));
  }
  return implied;
}

}  // namespace

nn::Mamba2Spec read_mamba2(ConfigReader& config, const DecoderSizes& sizes, double norm_eps) {
  constexpr std::int64_t kMostTaps = 8, kMostTimes = 1 << 10;
  const std::int64_t heads = config.size_or("mamba_n_heads", kLargestWidth, 128);
  const std::int64_t inner_width = config.size_or("mamba_expand", kMostTimes, 2) * sizes.hidden_size;
  const ops::StateSpaceLayout layout{.heads = heads,
                                     .head_dim = read_head_dim(config, inner_width, heads),
                                     .groups = config.size_or("mamba_n_groups", kLargestWidth, 1),
                                     .state_dim = config.size_or("mamba_d_state", kLargestWidth, 256)};
  if (heads % layout.groups != 0) {
    config.contradiction("mamba_n_heads " + std::to_string(heads) + " is no multiple of mamba_n_groups " +
                         std::to_string(layout.groups));
  }
  if (layout.b_begin() + layout.width() + heads > kLargestWidth) {
    config.contradiction("mamba_expand, mamba_n_groups and mamba_d_state make a projection over " +
                         std::to_string(kLargestWidth) + " wide");
  }
  require_no_limit(config);
  config.claim({"mamba_chunk_size"});  // results don't depend on it
  return {.hidden_size = sizes.hidden_size,
          .layout = layout,
          .taps = config.size_or("mamba_d_conv", kMostTaps, 4),
          .norm_eps = norm_eps,
          .norm_groups = layout.groups,
          .convolution_bias = config.flag("mamba_conv_bias", true),
          .bias = config.flag("mamba_proj_bias", false)};
}

}  // namespace lorikeet::models
