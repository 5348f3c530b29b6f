#include <iostream>
#include <memory>

#include "apps/hub_paths.h"
#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/model_options.h"
#include "apps/verbs/verbs.h"
#include "recipes/inference.h"

namespace lorikeet::apps {

Verb add_eval(CLI::App& app) {
  struct Options {
    std::string model, data, adapter;
    bool per_token = false, exact_match = false;
    std::int64_t max_new_tokens = 256;
    std::vector<std::string> overrides;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "eval", "Writes a JSON line with loss and perplexity of a model on the answers of a data file.");
  command->add_option("model", o->model, "a checkpoint's folder, or hub:REPO")
      ->required()
      ->transform(home_path());
  command->add_option("--data", o->data, "the data file")->required()->transform(home_path());
  command->add_option("--adapter", o->adapter, "a PEFT adapter's folder")->transform(home_path());
  command->add_flag("--per-token", o->per_token,
                    "also a JSON line a row with every label token's likelihood");
  CLI::Option* exact_match =
      command->add_flag("--exact-match", o->exact_match,
                        "also the share of rows whose whole greedy answer is the expected one");
  command->add_option("--max-new-tokens", o->max_new_tokens, "of an answer, with --exact-match")
      ->capture_default_str()
      ->needs(exact_match)
      ->check(between(1, 1 << 20));
  command->add_option("overrides", o->overrides,
                      "settings, e.g. precision.preset=fp32 data.train.format=chat");
  return {command, [o] {
            o->model = local_model(o->model);
            o->data = local_data(o->data);
            recipes::EvalRequest request{.model = o->model,
                                         .settings = verb_settings("eval", o->model, o->overrides),
                                         .data = o->data,
                                         .per_token = o->per_token,
                                         .exact_match = o->exact_match,
                                         .max_new_tokens = o->max_new_tokens};
            if (!o->adapter.empty()) request.adapter = o->adapter;
            recipes::evaluate(request, std::cout);
            return 0;
          }};
}

}  // namespace lorikeet::apps
