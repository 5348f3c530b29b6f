#include <iostream>
#include <memory>

#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/verbs.h"
#include "base/file.h"
#include "base/log.h"
#include "convert/convert.h"

namespace lorikeet::apps {

Verb add_convert_config(CLI::App& app) {
  struct Options {
    std::string file;
    convert::ConvertOptions convert;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("convert-config",
                         "Writes another trainer's LoRA config, a torchtune recipe's, an axolotl one or the "
                         "arguments of litgpt's finetune_lora, as one "
                         "of ours to stdout. What has no counterpart becomes a comment, what "
                         "would change the result is an error.");
  command->add_option("file", o->file, "the other trainer's YAML file")->required()->transform(home_path());
  command
      ->add_option(
          "--devices", o->convert.devices,
          "how many processes it was run on: torchtune's and axolotl's batches are those of one of them")
      ->capture_default_str()
      ->check(between<std::int64_t>(1, 1 << 16));
  return {command, [o] {
            constexpr std::size_t kMostBytes = 1U << 20;
            const convert::Converted result =
                convert::convert_config(read_file(o->file, kMostBytes), o->file, o->convert);
            std::cout << result.yaml;
            for (const std::string& note : result.notes) log_info("differs: " + note);
            return 0;
          }};
}

}  // namespace lorikeet::apps
