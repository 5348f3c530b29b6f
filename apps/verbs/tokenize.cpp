#include <iostream>
#include <memory>

#include "apps/hub_paths.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/verbs.h"
#include "io/checkpoint.h"
#include "text/tokenize_lines.h"

namespace lorikeet::apps {

Verb add_tokenize(CLI::App& app) {
  struct Options {
    std::string folder;
    text::TokenizeLinesOptions lines;
    bool no_specials = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "tokenize",
      "Reads a JSON string a line from stdin and writes the array of its token ids a line to stdout.");
  command->add_option("folder", o->folder, "a checkpoint's folder, or just a tokenizer's, or hub:REPO")
      ->required()
      ->transform(home_path());
  command->add_flag("--decode", o->lines.decode, "the reverse: id arrays to strings");
  command->add_flag("--no-specials", o->no_specials,
                    "encoding: without what the tokenizer adds (BOS); decoding: leave special tokens out");
  command->add_flag("--bos-eos", o->lines.bos_eos,
                    "encoding: BOS and EOS around the ids, whatever the tokenizer adds");
  return {command, [o] {
            o->lines.specials = !o->no_specials;
            std::ios::sync_with_stdio(false);
            o->folder = local_model(o->folder);
            io::require_model_folder(o->folder);
            text::tokenize_lines(*text::load_tokenizer(o->folder), std::cin, std::cout, o->lines);
            return 0;
          }};
}

}  // namespace lorikeet::apps
