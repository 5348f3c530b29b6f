#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/verbs/between.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "hub/download.h"

namespace lorikeet::apps {

Verb add_download(CLI::App& app) {
  struct Options {
    std::string repository, revision;
    std::vector<std::string> include;
    bool dataset = false;
    int parallel = 4;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("download",
                                         "Brings a model or data set of the Hugging Face Hub into the cache "
                                         "that its own tools use, and prints the "
                                         "folder. An interrupted download goes on where it stopped. Of a "
                                         "model: safetensors, configs, tokenizer and "
                                         "templates; never pickles or code.");
  command->add_option("repository", o->repository, "OWNER/NAME, as the Hub shows it")->required();
  command->add_option("--revision", o->revision, "a branch, a tag or a commit; else main");
  command->add_option("--include", o->include, "only files that match this glob (more than one may be given)")
      ->type_name("GLOB")
      ->expected(1)
      ->take_all();
  command->add_flag("--dataset", o->dataset, "the repository is a data set");
  command->add_option("--jobs", o->parallel, "files at a time")->capture_default_str()->check(between(1, 64));
  command->footer(
      "HF_TOKEN or `hf auth login` gives access to gated and private repositories; HF_HOME or HF_HUB_CACHE "
      "says "
      "where the cache is, HF_ENDPOINT another server.");
  return {command, [o] {
            const auto kind = o->dataset ? hub::RepositoryKind::kDataset : hub::RepositoryKind::kModel;
            const std::string prefix = "hub:";
            if (o->repository.starts_with(prefix)) o->repository.erase(0, prefix.size());
            hub::Repository repository = hub::parse_repository(o->repository, kind);
            if (!o->revision.empty()) {
              hub::require_revision(o->revision);
              repository.revision = o->revision;
            }
            std::cout << hub::download(repository, hub::read_environment(),
                                       {.include = o->include,
                                        .parallel = o->parallel,
                                        .on_terminal = isatty(STDERR_FILENO) == 1,
                                        .retry = {}})
                             .string()
                      << "\n";
            return 0;
          }};
}

}  // namespace lorikeet::apps
