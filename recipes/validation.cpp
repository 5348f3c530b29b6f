#include "recipes/validation.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/strings.h"
#include "data/load.h"
#include "data/sampler.h"
#include "data/source_files.h"
#include "peft/adapter_config.h"
#include "peft/adapter_file.h"
#include "recipes/adapter_template.h"
#include "recipes/adapter_tokens.h"
#include "recipes/devices.h"
#include "recipes/model_session.h"
#include "recipes/run_data.h"
#include "recipes/settings_map.h"

namespace lorikeet::recipes {
namespace {

class Validator {
 public:
  explicit Validator(const ValidationRequest& request)
      : request_(request), settings_(request.settings), policy_(precision::resolve({})) {}

  Validation run() {
    attempt([&] { check_device(); });
    if (!is_placeholder("model.path", settings_.model.path)) open_whatever_is_adapted();
    if (settings_.lora.starts_from_folder()) attempt([&] { check_start_adapter(); });
    check_data();
    if (!knows_modules_) out_.unchecked.emplace_back("lora.target_modules");
    out_.unchecked.insert(out_.unchecked.end(),
                          {"the weights' values",
                           tried_rows_ ? "every row of the data (some were tried)" : "the rows of the data",
                           "checkpoint.output_dir", "memory (`lorikeet plan` does)"});
    return std::move(out_);
  }

 private:
  void attempt(const std::function<void()>& check) {
    try {
      check();
    } catch (const Error& error) {
      out_.problems.emplace_back(error.what());
    }
  }

  bool is_placeholder(const std::string& name, const std::string& path) {
    std::error_code ignored;
    if (request_.given.contains(name) || !request_.placeholders.contains(path)) return false;
    if (std::filesystem::exists(path, ignored)) return false;
    out_.unchecked.push_back(name + " (a ready-made config's '" + path +
                             "', which isn't there: give your own)");
    return true;
  }

  void check_device() {
    if (settings_.device.kind == config::DeviceSetting::Kind::kAuto) {
      policy_ = precision::resolve(settings_.precision);
      out_.unchecked.emplace_back("the device that 'auto' will choose");
    } else {
      policy_ = choose_policy(settings_.precision, choose_devices(settings_.device, 1)[0]);
    }
  }

  // Where the adapter's settings are the problem, the rows are tried with another adapter all the same.
  void open_whatever_is_adapted() {
    attempt([&] {
      open(settings_.lora);
      knows_modules_ = true;
    });
    if (knows_modules_) return;
    try {
      open({});
    } catch (const Error&) {  // that isn't it
    }
  }

  void open(const config::LoraSettings& lora) {
    require_storage_fits(settings_.precision, settings_.model.path);
    session_ = open_model(settings_.model.path, policy_, device::Device{}, lora_config(lora),
                          static_cast<std::uint64_t>(settings_.training.seed), new_tokens(settings_.model));
  }

  void check_start_adapter() {
    const std::string& folder = settings_.lora.init;
    const peft::LoraConfig found = peft::load_adapter_config(folder);
    peft::require_same_settings(lora_config(settings_.lora), found, folder);
    if (!knows_modules_) return;
    peft::require_same_scales(*session_->adapters, found, folder);
    peft::require_adapter_fits(folder, *session_->adapters);
    require_same_tokens(folder, *session_);
  }

  // Once, by the first rows that a template writes.
  void check_start_template(data::Format rows) {
    if (!session_ || knows_start_template_ || !data::needs_template(rows)) return;
    knows_start_template_ = true;
    warn(other_start_template(settings_, rows, *session_->tokenizer));
  }

  void check_data() {
    const std::string& train = settings_.data.train.path;
    bool knows_template = false;
    const data::DataOptions options = data_options(settings_);
    if (settings_.training.max_steps)
      attempt([&] { require_steps_fit(settings_, *settings_.training.max_steps); });
    data::TokenDataset longest;  // of a mixture's sources
    for (const data::MixtureSource& source : options.sources) {
      attempt([&] {
        const data::LoadedFile tried = check_rows(source.path, source.rows, "data.train.sources").file;
        if (tried.dataset.longest() > longest.longest()) longest = tried.dataset;
        check_start_template(tried.report.rows);
      });
      knows_template = session_.has_value();
    }
    if (session_ && longest.size() > 0) warn(beyond_positions(settings_, *session_, longest));
    if (options.sources.empty() && !is_placeholder("data.train.path", train)) {
      attempt([&] {
        const auto [tried, all] = check_rows(train, options, "data.train.path");
        if (!session_) return;
        const bool knows_steps =
            all && settings_.data.validation.fraction == 0 && !settings_.training.max_steps;
        if (knows_steps && tried.dataset.size() > 0)
          require_steps_fit(settings_,
                            data::Sampler(tried.dataset, sampler_options(settings_)).total_steps());
        warn(beyond_positions(settings_, *session_, tried.dataset));
        warn(unending_answers(settings_, *session_, tried.dataset, tried.report.rows, tried.report.file));
        check_start_template(tried.report.rows);
      });
      knows_template = session_.has_value();
    }
    if (options.validation_path) {
      attempt([&] {
        data::read_validation(options, [&] {
          check_rows(*options.validation_path, data::validation_rows(options), "data.validation.path");
        });
      });
    }
    // Without a model or rows a template that was named can be looked for all the same.
    const std::string& named = settings_.data.chat_template;
    if (!knows_template && named != "auto")
      attempt([&] {
        text::choose_chat_template(named, {}, /*instruction_rows=*/true, settings_.data.template_date);
      });
  }

  void warn(const std::optional<std::string>& warning) {
    if (warning) out_.warnings.push_back(*warning);
  }

  struct Tried {
    data::LoadedFile file;
    bool all = false;  ///< rows of the source
  };

  // What was tried of them: nothing without a model.
  Tried check_rows(const std::filesystem::path& path, const data::RowOptions& how,
                   const std::string& setting) {
    data::require_source_there(path, setting);
    const auto rows = data::open_source(path, how);
    if (!session_) return {};
    data::DataOptions options = data_options(settings_, session_->embedding_rows());
    static_cast<data::RowOptions&>(options) = how;
    tried_rows_ = true;
    Tried tried{data::try_rows(*rows, options, *session_->tokenizer)};
    tried.all = tried.file.report.counts.rows == static_cast<std::int64_t>(rows->size());
    warn(data::incomplete_rows(tried.file.report));
    return tried;
  }

  const ValidationRequest& request_;
  const config::Settings& settings_;
  precision::Policy policy_;
  std::optional<ModelSession> session_;
  bool knows_modules_ = false;  // those that get adapters: the session has the settings' own
  bool tried_rows_ = false;
  bool knows_start_template_ = false;
  Validation out_;
};

}  // namespace

Validation validate(const ValidationRequest& request) { return Validator(request).run(); }

}  // namespace lorikeet::recipes
