#include "recipes/adapter_output.h"

#include "base/error.h"
#include "base/strings.h"
#include "io/folders.h"
#include "recipes/adapter_template.h"
#include "recipes/tokenizer_files.h"

namespace lorikeet::recipes {

void require_new_folder(const std::filesystem::path& output) {
  if (!std::filesystem::exists(output)) return;
  if (std::filesystem::is_directory(output) && std::filesystem::is_empty(output)) return;
  throw Error("[adapters] expected a new or empty folder, got '" + escape_control(output.string()) +
              "', which is not empty; choose another --output");
}

void write_adapter(const peft::AdapterContents& adapter, const std::filesystem::path& first,
                   const std::filesystem::path& output) {
  require_new_folder(output);
  io::AtomicFolder folder(io::take_place_of_empty(output));
  peft::write_adapter_contents(folder.path(), adapter);
  const auto trained = adapter_template(first);
  if (trained) copy_tokenizer_files(trained->folder, folder.path());
  copy_tokenizer_files(first, folder.path());
  if (trained) set_chat_template(folder.path(), text::jinja_of(trained->chosen, trained->chosen.rows));
  folder.commit();
}

}  // namespace lorikeet::recipes
