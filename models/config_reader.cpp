#include "models/config_reader.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::models {
namespace {

// A setting of some family's config.json that changes what a model computes, and the values that leave it
// off. Null always does.
struct Setting {
  const char* key;
  std::vector<Json> off;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> kSettings{
      {"alibi", {false}},
      {"apply_residual_connection_post_layernorm", {false}},
      {"attention_bias", {false}},
      {"attention_k_eq_v", {false}},
      {"attention_multiplier", {}},
      {"attention_out_bias", {false}},
      {"attn_logit_softcapping", {}},
      {"bias", {false}},
      {"clip_qkv", {}},
      {"embedding_multiplier", {1.0}},
      {"enable_moe_block", {false}},
      {"final_logit_softcapping", {}},
      {"global_head_dim", {}},
      {"hidden_size_per_layer_input", {0}},
      {"is_causal", {true}},
      {"layer_types", {}},
      {"logit_scale", {1.0}},
      {"logits_scaling", {1.0}},
      {"mlp_bias", {false}},
      {"new_decoder_architecture", {false}},
      {"no_rope_layers", {}},
      {"num_experts", {0}},
      {"num_kv_shared_layers", {0}},
      {"num_local_experts", {0}},
      {"parallel_attn", {false}},
      {"partial_rotary_factor", {1.0}},
      {"per_layer_config", {}},
      {"qk_layernorm", {false}},
      {"quantization_config", {}},
      {"query_pre_attn_scalar", {}},
      {"residual_multiplier", {1.0}},
      {"rope_interleave", {false}},
      {"rope_local_base_freq", {}},
      {"rotary_emb_base", {}},
      {"rotary_pct", {1.0}},
      {"sliding_window", {}},
      {"text_config", {}},
      {"use_bias", {false}},
      {"use_bidirectional_attention", {false}},
      {"use_double_wide_mlp", {false}},
      {"use_parallel_residual", {false}},
      {"use_qk_norm", {false}},
      {"use_qkv_bias", {false}},
      {"use_sliding_window", {false}},
  };
  return kSettings;
}

bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  return a.is_bool() && b.is_bool() && a.boolean() == b.boolean();
}

}  // namespace

JsonView ConfigReader::asked(std::string_view key) {
  read_.emplace(key);
  return config_.at(key);
}

void ConfigReader::claim(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

bool ConfigReader::has(std::string_view key) {
  read_.emplace(key);
  return config_.has(key);
}

bool ConfigReader::is_null(std::string_view key) { return !has(key) && config_.json().find(key) != nullptr; }

std::int64_t ConfigReader::size(std::string_view key, std::int64_t largest) {
  const JsonView value = asked(key);
  const std::int64_t n = value.as_int();
  if (n <= 0 || n > largest)
    fail(key, "expected an integer from 1 to " + std::to_string(largest) + ", got " + std::to_string(n));
  return n;
}

std::int64_t ConfigReader::size_or(std::string_view key, std::int64_t largest, std::int64_t fallback) {
  return has(key) ? size(key, largest) : fallback;
}

std::int64_t ConfigReader::count_or(std::string_view key, std::int64_t largest, std::int64_t absent) {
  if (is_null(key)) fail(key, "expected a number, 0 for none, got null");
  const std::int64_t count = config_.get_int(key, absent);
  if (count < 0 || count > largest) {
    fail(key, "expected an integer from 0 to " + std::to_string(largest) + ", got " + std::to_string(count));
  }
  return count;
}

bool ConfigReader::flag(std::string_view key, bool fallback) {
  read_.emplace(key);
  return config_.get_bool(key, fallback);
}

double ConfigReader::positive(std::string_view key, double largest) {
  const double number = asked(key).as_number();
  if (!(number > 0 && number <= largest))
    fail(key, "expected a number above 0, at most " + format_number("%g", largest) + ", got " +
                  format_number("%g", number));
  return number;
}

double ConfigReader::positive_or(std::string_view key, double largest, double fallback) {
  return has(key) ? positive(key, largest) : fallback;
}

double ConfigReader::epsilon(std::string_view key) {
  const double number = asked(key).as_number();
  if (!(number > 0 && number < 1)) fail(key, "expected a number in (0, 1)");
  return number;
}

std::string ConfigReader::choice(std::string_view key, const std::string& fallback,
                                 std::initializer_list<std::string_view> known) {
  read_.emplace(key);
  const std::string value = config_.get_string(key, fallback);
  if (std::find(known.begin(), known.end(), value) != known.end()) return value;
  std::vector<std::string> names;
  for (const std::string_view name : known) names.push_back("'" + std::string(name) + "'");
  fail(key, "expected " + join(names, " or ") + " for a model of the family " + family_ + ", got '" +
                escape_control(value) + "'");
}

void ConfigReader::require_flag(std::string_view key, bool expected, const std::string& why) {
  if (flag(key, expected) == expected) return;
  fail(key, std::string(expected ? "false" : "true") + " is not supported: " + why);
}

void ConfigReader::finish() const {
  for (const Setting& setting : settings()) {
    const Json* value = config_.json().find(setting.key);
    if (value == nullptr || value->is_null() || read_.contains(setting.key)) continue;
    const bool off = std::any_of(setting.off.begin(), setting.off.end(),
                                 [&](const Json& neutral) { return equal(*value, neutral); });
    if (off) continue;
    fail(setting.key, "the family " + family_ + " has no such setting, got " + value->brief() +
                          "; remove it if the model computes without it");
  }
}

void ConfigReader::fail(std::string_view key, const std::string& problem) const {
  throw Error("[" + config_.where() + ": " + std::string(key) + "] " + problem);
}

void ConfigReader::contradiction(const std::string& problem) const {
  throw Error("[" + config_.where() + "] " + problem);
}

}  // namespace lorikeet::models
