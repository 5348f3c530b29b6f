#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "config/settings.h"
#include "data/format.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

// The chat template that an adapter was trained with, so that it is asked in the words that it has learnt.
namespace lorikeet::recipes {

struct AdapterTemplate {
  text::ChosenTemplate chosen;
  std::filesystem::path folder;  ///< whose files say so: the adapter's, or that of the run it is a part of
  std::string date = config::DataSettings{}.template_date;  ///< the run's data.template_date
};

/// The folder of the run that wrote the adapter: its own, or that above best/ and checkpoints/step_N/.
std::filesystem::path run_of_adapter(const std::filesystem::path& adapter);

/// That folder, where the files of a tokenizer lie in it.
std::optional<std::filesystem::path> tokenizer_of_adapter(const std::filesystem::path& adapter);

/// What decides, beside its files, how an adapter has to be asked.
struct TrainedWith {
  /// kNF4 or kF8, where the linear weights of the base were held so; nothing for plain numbers.
  std::optional<config::BaseStorage> base_storage;
  std::string template_date = config::DataSettings{}.template_date;  ///< data.template_date

  bool operator==(const TrainedWith&) const = default;
};

/// "nf4" or "fp8".
std::string_view name_of(config::BaseStorage quantized);

/// How the adapter in `folder` was trained, by the settings of its run, or by what write_trained_with wrote
/// there. Nothing, with a warning, where these can't be read, and nothing where there are none.
std::optional<TrainedWith> trained_with(const std::filesystem::path& folder);

/// Writes it beside an adapter that is no run's own.
void write_trained_with(const std::filesystem::path& folder, const TrainedWith& with);

/// The template that the adapter in `folder` was trained with, as far as its files say so: config.yaml and
/// the tokenizer's files of a run of this program (also for its best/ and checkpoints/step_N/), the
/// tokenizer's files of any other adapter, and the date of write_trained_with. Throws nothing for files that
/// can't be read: they say nothing then.
std::optional<AdapterTemplate> adapter_template(const std::filesystem::path& folder);

/// A warning that names both, where rows of format `rows` are written by another template in a run of
/// `settings` than the adapter that it starts from (lora.init) was trained with, as far as that is known.
/// Throws Error for a data.chat_template that there isn't.
std::optional<std::string> other_start_template(const config::Settings& settings, data::Format rows,
                                                const text::Tokenizer& tokenizer);

/// How questions are written to a model with or without an adapter.
struct InferenceTemplate {
  std::string setting;                                  ///< for data.chat_template
  std::string date;                                     ///< for data.template_date
  text::RowKind prompts = text::RowKind::kInstruction;  ///< what a bare question is written as
  bool reported = false;                                ///< which template it is was logged
};

/// Settles the command line's data.chat_template and data.template_date: auto, and the date where it is left
/// as it is, become the adapter's, where it has them. Logs what is used and where it is from, and warns where
/// another template than the adapter's is asked for.
InferenceTemplate settle_chat_template(const config::DataSettings& data,
                                       const std::optional<std::filesystem::path>& adapter,
                                       const text::Tokenizer& tokenizer);

}  // namespace lorikeet::recipes
