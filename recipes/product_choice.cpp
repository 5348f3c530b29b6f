#include "recipes/product_choice.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "ops/cpu_allocator.h"
#include "ops/dtype.h"
#include "probe/rates_file.h"
#include "recipes/settings_map.h"
#include "recipes/step_plan.h"

namespace lorikeet::recipes {
namespace {

using ops::HalfProducts;

constexpr std::int64_t kLeastParameters = 4'000'000;
// What is measured must be affordable before it is known whether the run fits into memory.
constexpr std::int64_t kMostRank = 64;
constexpr double kGiga = 1e9;

const char* name_of(HalfProducts products) {
  return products == HalfProducts::kNative ? "native" : "widened";
}

HalfProducts by_feature(const precision::Policy& policy) {
  return ops::native_by_feature(ops::to_torch(policy.compute)) ? HalfProducts::kNative
                                                               : HalfProducts::kWidened;
}

// A cache that can't be written costs the next run a second.
void keep(const std::filesystem::path& file, const Json& key, const probe::ProductRates& rates) {
  try {
    probe::save_rates(file, key, rates);
  } catch (const Error& error) {
    log_warning(std::string("the measured rates of matrix products couldn't be kept: ") + error.what());
  }
}

ProductChoice use(ProductChoice choice) {
  ops::set_half_products(choice.products);
  return choice;
}

probe::ProductJob training_job(const ModelSession& session, const config::Settings& settings) {
  return product_job(session, usual_micro_tokens(session, settings), /*backward=*/true);
}

}  // namespace

Json ProductChoice::json() const {
  Json json;
  json.set("choice", name_of(products)).set("reason", reason);
  if (rates) {
    json.set("native_gflops_per_second", rates->native / kGiga)
        .set("widened_gflops_per_second", rates->widened / kGiga)
        .set("native_over_widened", rates->native_over_widened);
  }
  return json;
}

ProductChoice ProductChoice::from_json(const JsonView& json) {
  const JsonView name = json.at("choice");
  if (name.as_string() != "native" && name.as_string() != "widened") name.fail("'native' or 'widened'");
  ProductChoice choice{
      .products = name.as_string() == "native" ? HalfProducts::kNative : HalfProducts::kWidened,
      .reason = json.at("reason").as_string()};
  if (json.has("native_gflops_per_second")) {
    choice.rates = {.native = kGiga * json.at("native_gflops_per_second").as_number(),
                    .widened = kGiga * json.at("widened_gflops_per_second").as_number(),
                    .native_over_widened = json.at("native_over_widened").as_number()};
  }
  return choice;
}

std::string ProductChoice::describe() const {
  std::string why = reason == "setting"   ? "precision.matmul"
                    : reason == "feature" ? "by the CPU's features"
                    : reason == "resumed" ? "as the run began"
                    : reason == "cache"   ? "measured before"
                                          : "measured";
  if (rates) {
    why += ": " + format_number("%.0f", rates->native / kGiga) + " GFLOP/s native, " +
           format_number("%.0f", rates->widened / kGiga) + " widened";
  }
  return std::string(name_of(products)) + " (" + why + ")";
}

namespace {

// Those around attention or what is in its place, as many of each size as the layers have.
std::vector<probe::FrozenProduct> mixer_products(const nn::CausalLMSpec& spec) {
  std::vector<probe::FrozenProduct> products;
  const auto add = [&](const nn::GroupSpec& group) {
    const std::int64_t modules = std::ssize(group.modules);
    const auto same = std::find_if(products.begin(), products.end(), [&](const auto& product) {
      return product.out == group.out_features() && product.in == group.in_features &&
             product.projections == modules;
    });
    if (same == products.end()) {
      products.push_back({group.out_features(), group.in_features, 1, modules});
    } else {
      ++same->count;
    }
  };
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    for (const nn::GroupSpec& group : layer.mixer_inputs()) add(group);
    add(layer.mixer_output());
  }
  return products;
}

}  // namespace

probe::ProductJob product_job(const ModelSession& session, std::int64_t tokens, bool backward) {
  const nn::ModelShape& shape = session.model->shape();
  std::vector<probe::FrozenProduct> products = mixer_products(session.model->spec());
  products.insert(products.end(), {{2 * shape.intermediate_size, shape.hidden_size, shape.layers, 2},
                                   {shape.hidden_size, shape.intermediate_size, shape.layers, 1},
                                   {shape.vocab_size, shape.hidden_size, 1, 0}});
  return {.dtype = ops::to_torch(session.policy.compute),
          .tokens = tokens,
          .rank = session.adapters ? std::min(session.adapters->config().rank, kMostRank) : 0,
          .backward = backward,
          .products = std::move(products)};
}

bool has_product_choice(const ModelSession& session) {
  return !session.device.is_cuda() && dtype_size(session.policy.compute) == 2;
}

ProductChoice choose_products(const precision::Policy& policy, const probe::ProductJob& job,
                              bool deterministic) {
  if (policy.matmul == config::Matmul::kNative) return {HalfProducts::kNative, "setting"};
  if (policy.matmul == config::Matmul::kWidened) return {HalfProducts::kWidened, "setting"};
  const HalfProducts usual = by_feature(policy);
  if (deterministic || job.parameters() < kLeastParameters) return {usual, "feature"};
  const Json key = probe::rates_key(job);
  const auto file = probe::rates_file(key);
  if (file) {
    if (const auto rates = probe::load_rates(*file, key))
      return {probe::faster_products(*rates, usual), "cache", rates};
  }
  ops::install_cpu_allocator();  // the one that the run will have
  const probe::ProductRates rates = probe::measure_products(job);
  if (file) keep(*file, key, rates);
  return {probe::faster_products(rates, usual), "measured", rates};
}

std::optional<ProductChoice> settle_products(const ModelSession& session, const config::Settings& settings,
                                             RankGroup& group, const std::optional<Json>& begun) {
  if (!has_product_choice(session)) return std::nullopt;
  std::string own;
  if (group.first()) {
    ProductChoice choice{.products = by_feature(session.policy), .reason = "resumed"};
    if (!begun) {
      choice =
          choose_products(session.policy, training_job(session, settings), settings.training.deterministic);
    } else if (!begun->is_null()) {
      choice = ProductChoice::from_json(JsonView(*begun, "run.json: products"));
      choice.reason = "resumed";
    }
    own = choice.json().dump();
  }
  const Json shared = Json::parse(group.share("products", own), "the first rank's products");
  const ProductChoice choice = ProductChoice::from_json(JsonView(shared, "the first rank's products"));
  log_info(std::string("products of ") + std::string(dtype_name(session.policy.compute)) +
           " matrices: " + choice.describe());
  return use(choice);
}

std::optional<ProductChoice> settle_products(const ModelSession& session, const config::Settings& settings) {
  if (!has_product_choice(session)) return std::nullopt;
  return use(
      choose_products(session.policy, training_job(session, settings), settings.training.deterministic));
}

std::optional<ProductChoice> settle_generation_products(const ModelSession& session,
                                                        const config::Settings& settings,
                                                        std::int64_t sequences) {
  if (!has_product_choice(session)) return std::nullopt;
  // One measurement serves what is of about the size.
  const auto tokens = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(sequences)));
  return use(choose_products(session.policy, product_job(session, tokens, /*backward=*/false),
                             settings.training.deterministic));
}

}  // namespace lorikeet::recipes
