#include <iostream>
#include <memory>

#include "apps/hub_paths.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/verbs.h"
#include "base/file.h"
#include "io/checkpoint.h"
#include "text/render_lines.h"

namespace lorikeet::apps {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

struct Options {
  std::string folder, source, tools;
  text::ConversationRenderer::Options render;
};

text::ConversationRenderer renderer(Options& o) {
  const text::FolderConfig config = text::read_folder_config(o.folder);
  o.render.tokens = config.token_names;
  if (!o.tools.empty()) o.render.tools = Json::parse(read_file(o.tools, kMostBytes), o.tools);
  if (o.source.empty()) {
    const std::string& own = text::folder_template(config, !o.tools.empty(), o.folder);
    return {own, o.render};
  }
  return {read_file(o.source, kMostBytes), o.render};
}

}  // namespace

Verb add_render(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "render",
      "Reads a conversation a line from stdin, a JSON array of messages, and writes its text by the model's "
      "own chat template to stdout, a JSON string a line.");
  command->add_option("model", o->folder, "a checkpoint's folder, or just a tokenizer's, or hub:REPO")
      ->required()
      ->transform(home_path());
  command->add_option("--template", o->source, "a Jinja file in place of the model's own template")
      ->transform(home_path());
  command->add_option("--tools", o->tools, "a file with a JSON array of the tools' schemas")
      ->transform(home_path());
  command->add_option("--date", o->render.render.date, "the day that strftime_now writes")
      ->capture_default_str();
  command->add_flag("--add-generation-prompt", o->render.add_generation_prompt,
                    "ends with what opens the assistant's next turn");
  return {command, [o] {
            std::ios::sync_with_stdio(false);
            o->folder = local_model(o->folder);
            io::require_model_folder(o->folder);
            text::render_lines(renderer(*o), std::cin, std::cout);
            return 0;
          }};
}

}  // namespace lorikeet::apps
