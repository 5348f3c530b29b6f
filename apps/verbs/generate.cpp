#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <memory>

#include "apps/hub_paths.h"
#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/model_options.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "recipes/inference.h"

namespace lorikeet::apps {

Verb add_generate(CLI::App& app) {
  struct Options {
    std::string model, data, adapter;
    std::vector<std::string> prompts, overrides;
    recipes::GenerateRequest request;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "generate",
      "Answers questions, with the base alone or with an adapter: --prompt TEXT, or rows of --data FILE.");
  command->add_option("model", o->model, "a checkpoint's folder, or hub:REPO")
      ->required()
      ->transform(home_path());
  command->add_option("--adapter", o->adapter, "a PEFT adapter's folder")->transform(home_path());
  command->add_option("--prompt", o->prompts, "a question; may be given several times")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--system", o->request.system, "a system prompt before each --prompt");
  CLI::Option* data = command->add_option("--data", o->data, "a data file whose rows are the questions")
                          ->transform(home_path());
  command->add_option("--limit", o->request.limit, "at most so many rows; 0: all")
      ->needs(data)
      ->capture_default_str()
      ->check(between<std::int64_t>(0, INT64_MAX));
  command->add_option("--max-new-tokens", o->request.max_new_tokens, "most tokens of an answer")
      ->capture_default_str()
      ->check(between(1, 1 << 20));
  CLI::Option* temperature =
      command->add_option("--temperature", o->request.temperature, "of sampling; 0 is greedy")
          ->capture_default_str()
          ->check(between(0.0, 100.0));
  command
      ->add_option("--top-p", o->request.top_p, "sample from the likeliest tokens of this total probability")
      ->needs(temperature)
      ->capture_default_str()
      ->check(between(0.0, 1.0));
  command->add_option("--seed", o->request.seed, "of sampling")
      ->needs(temperature)
      ->capture_default_str()
      ->check(between<std::int64_t>(0, INT64_MAX));
  command->add_option("overrides", o->overrides,
                      "settings, e.g. precision.preset=fp32 data.chat_template=llama3 (none: the bare text)");
  return {command, [o] {
            if (o->prompts.empty() && o->data.empty())
              throw Error("[generate] expected --prompt TEXT or --data FILE");
            if (!o->request.system.empty() && o->prompts.empty())
              throw Error("[generate] --system goes with --prompt; rows of --data bring their own");
            o->model = local_model(o->model);
            o->request.model = o->model;
            o->request.settings =
                verb_settings(o->data.empty() ? "generate" : "generate --data", o->model, o->overrides);
            o->request.prompts = o->prompts;
            if (!o->data.empty()) o->request.data = o->data;
            if (!o->adapter.empty()) o->request.adapter = o->adapter;
            recipes::generate(o->request, std::cout, isatty(STDOUT_FILENO) == 1);
            return 0;
          }};
}

}  // namespace lorikeet::apps
