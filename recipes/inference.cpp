#include "recipes/inference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/load.h"
#include "nn/batch.h"
#include "nn/generation.h"
#include "recipes/adapter_template.h"
#include "recipes/devices.h"
#include "recipes/model_session.h"
#include "recipes/product_choice.h"
#include "recipes/prompts.h"
#include "recipes/run_data.h"
#include "recipes/settings_map.h"
#include "recipes/step_plan.h"
#include "train/device_batch.h"
#include "train/evaluation.h"

namespace lorikeet::recipes {
namespace {

// Enough sequences to keep the matrix units busy, few enough that their cache stays small.
constexpr std::size_t kGenerationBatch = 64;

// Linear weights in 4 bits or fp8 are what an adapter of such a run was trained on, and what fits: so its
// base is read in the same form, unless the command line says in which.
config::PrecisionSettings precision_for(const std::filesystem::path& adapter,
                                        config::PrecisionSettings precision) {
  const auto with = trained_with(adapter);
  if (precision.base_storage || !with || !with->base_storage) return precision;
  log_info("the base is read in " + std::string(name_of(*with->base_storage)) +
           ", as the adapter's run had it; precision.base_storage=bf16 reads it in bf16");
  precision.base_storage = with->base_storage;
  return precision;
}

ModelSession open_session(const std::filesystem::path& model,
                          const std::optional<std::filesystem::path>& adapter,
                          const config::Settings& settings) {
  const auto device = choose_device(settings.device);
  const auto policy =
      choose_policy(adapter ? precision_for(*adapter, settings.precision) : settings.precision, device);
  if (adapter) return load_model_with_adapter(model, *adapter, policy, device);
  return load_model(model, policy, device, std::nullopt, 0);
}

void require_fits(const ModelSession& session, const Prompt& prompt, std::size_t index) {
  const std::int64_t tokens = std::ssize(prompt.ids), most = session.model->shape().max_position;
  const std::string where = "[generate] prompt " + std::to_string(index + 1) + ": ";
  if (tokens == 0) throw Error(where + "it has no tokens");
  if (tokens > most) {
    throw Error(where + "expected at most " + std::to_string(most) +
                " tokens (the model's max_position_embeddings), got " + std::to_string(tokens));
  }
}

void warn_beyond_positions(const ModelSession& session, std::int64_t longest) {
  const std::int64_t positions = session.model->shape().max_position;
  if (longest <= positions) return;
  log_warning("a prompt with its answer has " + std::to_string(longest) +
              " tokens, but the model was made for " + std::to_string(positions) +
              " positions (max_position_embeddings), beyond which it predicts badly; lower --max-new-tokens");
}

using Ids = std::vector<std::int32_t>;

// Calls `take` with every prompt and its answer, in their order, as batches of them are done. Throws Error
// before the first for a prompt that doesn't fit.
void answer(const ModelSession& session, const std::vector<Prompt>& prompts, nn::GenerationOptions options,
            const std::function<void(const Prompt&, const Ids&)>& take) {
  for (std::size_t i = 0; i < prompts.size(); ++i) require_fits(session, prompts[i], i);
  std::int64_t longest = 0;
  for (std::size_t begin = 0; begin < prompts.size(); begin += kGenerationBatch) {
    std::vector<Ids> batch;
    for (std::size_t i = begin; i < std::min(prompts.size(), begin + kGenerationBatch); ++i)
      batch.push_back(prompts[i].ids);
    options.first_prompt = static_cast<std::int64_t>(begin);
    const std::vector<Ids> answers = nn::generate(*session.model, batch, options, session.torch_device());
    for (std::size_t i = 0; i < answers.size(); ++i) {
      longest = std::max(longest, std::ssize(batch[i]) + std::ssize(answers[i]));
      take(prompts[begin + i], answers[i]);
    }
  }
  warn_beyond_positions(session, longest);
}

// The expected ids without the token that ends the answer.
Ids without_end(Ids ids, const std::vector<std::int32_t>& stops) {
  if (!ids.empty() && std::find(stops.begin(), stops.end(), ids.back()) != stops.end()) ids.pop_back();
  return ids;
}

void write_field(std::ostream& out, const char* name, const std::string& text, bool escape) {
  out << name << (escape ? escape_control(text) : text) << "\n";
}

// A JSON line for each row: which tokens it should have said, and how unlikely each was.
void write_token_nll(const nn::CausalLM& model, const data::TokenDataset& dataset, const at::Device& device,
                     std::ostream& out) {
  for (std::size_t i = 0; i < dataset.size(); ++i) {
    const std::vector<std::size_t> one{i};
    const nn::Batch batch = train::to_device(data::make_micro_batch(dataset, one), device);
    const at::Tensor nll = model.token_nll({.batch = batch}).cpu().contiguous();
    const at::Tensor labels = batch.labels.cpu();
    Json::Array ids, values;
    for (std::int64_t t = 0; t < nll.numel(); ++t) {
      ids.emplace_back(labels.const_data_ptr<std::int64_t>()[t]);
      values.emplace_back(static_cast<double>(nll.const_data_ptr<float>()[t]));
    }
    out << Json()
               .set("row", dataset.source_row(i))
               .set("labels", std::move(ids))
               .set("nll", std::move(values))
               .dump()
        << "\n";
  }
}

// The template that rows and questions are written with, after the adapter's, for whoever reads the log.
void report_template(const InferenceTemplate& settled, const std::string& description) {
  if (!settled.reported && !description.empty()) log_info("chat template: " + description);
}

// Ids that only the model has, not the tokenizer, have no text.
std::string decode(const text::Tokenizer& tokenizer, Ids ids) {
  std::erase_if(ids, [&](std::int32_t id) { return static_cast<std::size_t>(id) >= tokenizer.vocab_size(); });
  return tokenizer.decode(ids, /*skip_special=*/true);
}

// The file's rows and the typed questions.
std::vector<Prompt> prompts_of(const GenerateRequest& request, const ModelSession& session) {
  const text::Tokenizer& tokenizer = *session.tokenizer;
  const InferenceTemplate settled = settle_chat_template(request.settings.data, request.adapter, tokenizer);
  std::vector<Prompt> prompts;
  std::string description;
  if (request.data) {
    data::DataOptions options = data_options(request.settings, session.embedding_rows());
    options.chat_template = settled.setting;
    options.template_date = settled.date;
    prompts = read_prompts(*request.data, options, tokenizer, request.limit, &description);
  }
  if (!request.prompts.empty()) {
    text::ChosenTemplate chosen{.description = "none: questions as they are"};
    if (settled.setting != "none")
      chosen = text::choose_chat_template(settled.setting, tokenizer.templates(), /*instruction_rows=*/true,
                                          settled.date);
    description = chosen.description;
    if (chosen.empty() && !request.system.empty())
      throw Error("[generate] without a chat template (none) there is no place for --system");
    const text::PromptEncoder encoder(chosen, tokenizer);
    for (const std::string& question : request.prompts) {
      prompts.push_back(chosen.empty() ? Prompt{.shown = question, .ids = tokenizer.encode(question)}
                                       : make_prompt(question, request.system, settled.prompts, encoder));
    }
  }
  report_template(settled, description);
  return prompts;
}

// Greedy, unless its other members are set.
nn::GenerationOptions generation_options(const std::filesystem::path& model, const ModelSession& session,
                                         std::int64_t max_new_tokens) {
  return {.max_new_tokens = max_new_tokens,
          .stop_ids = stop_ids(model, session),
          .vocab_size = static_cast<std::int64_t>(session.tokenizer->vocab_size())};
}

Json exact_match(const ModelSession& session, const EvalRequest& request, const data::DataOptions& rows) {
  const auto prompts = read_prompts(request.data, rows, *session.tokenizer, 0);
  const auto options = generation_options(request.model, session, request.max_new_tokens);
  std::int64_t right = 0;
  answer(session, prompts, options, [&](const Prompt& prompt, const Ids& given) {
    right += given == without_end(prompt.expected, options.stop_ids) ? 1 : 0;
  });
  return Json(static_cast<double>(right) / static_cast<double>(prompts.size()));
}

}  // namespace

void generate(const GenerateRequest& request, std::ostream& out, bool escape) {
  const ModelSession session = open_session(request.model, request.adapter, request.settings);
  const std::vector<Prompt> prompts = prompts_of(request, session);
  settle_generation_products(
      session, request.settings,
      static_cast<std::int64_t>(std::clamp<std::size_t>(prompts.size(), 1, kGenerationBatch)));
  auto options = generation_options(request.model, session, request.max_new_tokens);
  options.temperature = request.temperature;
  options.top_p = request.top_p;
  options.seed = request.seed;
  answer(session, prompts, options, [&](const Prompt& prompt, const Ids& given) {
    write_field(out, "question: ", prompt.shown, escape);
    write_field(out, "answer:   ", decode(*session.tokenizer, given), escape);
    if (!prompt.expected.empty())
      write_field(out, "expected: ", decode(*session.tokenizer, prompt.expected), escape);
    out << "\n" << std::flush;  // what is finished stays, whatever comes
  });
}

void evaluate(const EvalRequest& request, std::ostream& out) {
  const ModelSession session = open_session(request.model, request.adapter, request.settings);
  const InferenceTemplate settled =
      settle_chat_template(request.settings.data, request.adapter, *session.tokenizer);
  data::DataOptions options = data_options(request.settings, session.embedding_rows());
  options.chat_template = settled.setting;
  options.template_date = settled.date;
  options.use_cache = false;
  const data::LoadedFile file = data::load_file(request.data, options, *session.tokenizer);
  report_template(settled, file.report.template_description);
  log_info(file.report.describe());
  if (file.dataset.longest() > session.model->shape().max_position) {
    if (const auto warning = beyond_positions(request.settings, session, file.dataset)) log_warning(*warning);
  }
  settle_products(session, request.settings);
  const train::Evaluation result = train::evaluate(
      *session.model, file.dataset,
      micro_options(request.settings, usual_micro_tokens(session, request.settings)), session.torch_device());
  if (!std::isfinite(result.loss())) {
    throw Error("[eval] the loss is not finite, though the adapter's values are: activations overflow in " +
                    std::string(dtype_name(session.policy.compute)) +
                    ", or the base has values that are NaN or infinite; try precision.preset=fp32",
                ErrorKind::kRunFailed);
  }
  if (request.per_token) write_token_nll(*session.model, file.dataset, session.torch_device(), out);
  Json json;
  json.set("loss", result.loss()).set("perplexity", std::exp(result.loss()));
  json.set("examples", static_cast<std::int64_t>(file.dataset.size()))
      .set("label_tokens", result.label_tokens);
  if (request.exact_match) json.set("exact_match", exact_match(session, request, options));
  out << json.dump() << "\n";
}

}  // namespace lorikeet::recipes
