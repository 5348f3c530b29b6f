#include "data/presets.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "data/message_trees.h"
#include "data/row_text.h"

namespace lorikeet::data {
namespace {

// Sources: the builders of torchtune 0.6.1 (torchtune/datasets, data/_prompt_templates.py) and of litgpt
// 0.5.9 (litgpt/data), and the data sets' own cards. The prompts are those that torchtune advises for samsum
// and grammar.
struct Preset {
  PresetInfo info;
  std::string format;
  std::map<std::string, std::string> columns{};
  std::string prompt{};  ///< with "{}" where the column goes that `columns` calls prompt
};

const std::vector<Preset>& all_presets() {
  static const std::vector<Preset> kPresets{
      {{"alpaca", "tatsu-lab/alpaca", "instruction, input, output"}, "alpaca"},
      {{"alpaca_cleaned", "yahma/alpaca-cleaned", "instruction, input, output"}, "alpaca"},
      {{"dolly", "databricks/databricks-dolly-15k", "instruction, context as the input, response"},
       "alpaca",
       {{"input", "context"}, {"output", "response"}}},
      {{"samsum", "Samsung/samsum", "a prompt that asks for a summary of dialogue, and summary"},
       "instruct",
       {{"prompt", "dialogue"}, {"completion", "summary"}},
       "Summarize this dialogue:\n{}\n---\nSummary:\n"},
      {{"grammar", "liweili/c4_200m", "a prompt that asks for a correction of input, and output"},
       "instruct",
       {{"prompt", "input"}, {"completion", "output"}},
       "Correct this to standard English: {}\n---\nCorrected: "},
      {{"slimorca", "Open-Orca/SlimOrca-Dedup", "conversations"}, "sharegpt"},
      {{"oasst", "OpenAssistant/oasst1", "of each message tree the conversation along the best replies"},
       "chat"},
      {{"lima", "GAIR/lima", "conversations, a list of texts, as turns of user and assistant"}, "chat"},
      {{"longform", "akoksal/LongForm", "input as the prompt, output"},
       "instruct",
       {{"prompt", "input"}, {"completion", "output"}}},
  };
  return kPresets;
}

std::string key_of(const RowOptions& options, const std::string& field) {
  const auto found = options.columns.find(field);
  return found == options.columns.end() ? field : found->second;
}

// Rows made out of another source's, one for one.
class ReshapedRecords : public RecordSource {
 public:
  explicit ReshapedRecords(std::unique_ptr<RecordSource> source) : source_(std::move(source)) {}

  std::size_t size() const override { return source_->size(); }
  std::size_t line(std::size_t i) const override { return source_->line(i); }
  std::string where(std::size_t i) const override { return source_->where(i); }
  const std::string& name() const override { return source_->name(); }
  void release_before(std::size_t i) const override { source_->release_before(i); }
  Json parse(std::size_t i) const override { return reshape(source_->parse(i), where(i)); }

 protected:
  virtual Json reshape(const Json& record, const std::string& where) const = 0;

 private:
  std::unique_ptr<RecordSource> source_;
};

class PromptRecords final : public ReshapedRecords {
 public:
  PromptRecords(std::unique_ptr<RecordSource> source, const RowOptions& options)
      : ReshapedRecords(std::move(source)),
        prompt_(*options.prompt, "data.train.prompt"),
        completion_(options.completion.value_or("{" + key_of(options, "completion") + "}"),
                    "data.train.completion") {}

 private:
  Json reshape(const Json& record, const std::string& where) const override {
    Json row;
    return row.set("prompt", prompt_.fill(record, where)).set("completion", completion_.fill(record, where));
  }

  RowText prompt_;
  RowText completion_;
};

class TextTurnRecords final : public ReshapedRecords {
 public:
  using ReshapedRecords::ReshapedRecords;

 private:
  Json reshape(const Json& record, const std::string& where) const override {
    const Json* turns = record.find("conversations");
    if (turns == nullptr || !turns->is_array())
      throw Error(where + ": expected 'conversations' to be a list of texts, as in LIMA");
    Json::Array messages;
    for (const Json& turn : turns->array()) {
      if (!turn.is_string())
        throw Error(where + ": expected 'conversations' to be a list of texts, as in LIMA");
      Json message;
      message.set("role", messages.size() % 2 == 0 ? "user" : "assistant").set("content", turn);
      messages.push_back(std::move(message));
    }
    return Json().set("messages", std::move(messages));
  }
};

}  // namespace

const std::vector<PresetInfo>& presets() {
  static const std::vector<PresetInfo> kInfos = [] {
    std::vector<PresetInfo> infos;
    for (const Preset& preset : all_presets()) infos.push_back(preset.info);
    return infos;
  }();
  return kInfos;
}

RowOptions resolve_preset(const RowOptions& options) {
  if (options.preset.empty()) return options;
  std::vector<std::string> names;
  for (const Preset& preset : all_presets()) {
    names.push_back(preset.info.name);
    if (preset.info.name != options.preset) continue;
    RowOptions out = options;
    out.format = preset.format;
    out.columns.insert(preset.columns.begin(), preset.columns.end());
    if (!preset.prompt.empty()) {
      const std::size_t slot = preset.prompt.find("{}");
      out.prompt =
          preset.prompt.substr(0, slot) + "{" + key_of(out, "prompt") + preset.prompt.substr(slot + 1);
    }
    return out;
  }
  throw Error("[data.train.preset] expected " + join(names, ", ") + "; got '" +
              escape_control(options.preset) + "'" + did_you_mean(options.preset, names));
}

std::unique_ptr<RecordSource> reshape_rows(std::unique_ptr<RecordSource> source, const RowOptions& options) {
  if (options.preset == "oasst") return conversations_of_trees(std::move(source));
  if (options.preset == "lima") return std::make_unique<TextTurnRecords>(std::move(source));
  if (options.prompt) return std::make_unique<PromptRecords>(std::move(source), options);
  return source;
}

}  // namespace lorikeet::data
