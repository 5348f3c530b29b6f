#include "recipes/adapter_output.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "io/folders.h"
#include "recipes/adapter_template.h"
#include "recipes/tokenizer_files.h"

namespace lorikeet::recipes {

namespace {

std::string shown(const TrainedWith& with) {
  return (with.base_storage ? "weights in " + std::string(name_of(*with.base_storage))
                            : std::string("unquantised weights")) +
         " and data.template_date=" + escape_control(with.template_date);
}

// The first that is known.
std::optional<TrainedWith> common_training(const std::vector<std::filesystem::path>& sources) {
  std::optional<TrainedWith> first;
  std::filesystem::path from;
  for (const std::filesystem::path& source : sources) {
    const auto with = trained_with(source);
    if (!with) continue;
    if (!first) {
      first = with;
      from = source;
    } else if (*with != *first) {
      log_warning("'" + escape_control(source.string()) + "' was trained with " + shown(*with) + ", '" +
                  escape_control(from.string()) + "' with " + shown(*first) +
                  ": the result is evaluated as the latter, unless settings say otherwise");
    }
  }
  return first;
}

}  // namespace

void require_new_folder(const std::filesystem::path& output) {
  if (!std::filesystem::exists(output)) return;
  if (std::filesystem::is_directory(output) && std::filesystem::is_empty(output)) return;
  throw Error("[adapters] expected a new or empty folder, got '" + escape_control(output.string()) +
              "', which is not empty; choose another --output");
}

void write_adapter(const peft::AdapterContents& adapter, const std::vector<std::filesystem::path>& sources,
                   const std::filesystem::path& output) {
  require_new_folder(output);
  io::AtomicFolder folder(io::take_place_of_empty(output));
  peft::write_adapter_contents(folder.path(), adapter);
  if (const auto with = common_training(sources)) write_trained_with(folder.path(), *with);
  const std::filesystem::path& first = sources.front();
  const auto trained = adapter_template(first);
  if (trained) copy_tokenizer_files(trained->folder, folder.path());
  copy_tokenizer_files(first, folder.path());
  if (trained)
    set_chat_template(folder.path(), text::jinja_of(trained->chosen, trained->chosen.rows), folder.path());
  folder.commit();
}

}  // namespace lorikeet::recipes
