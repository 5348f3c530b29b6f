#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lorikeet::hub {

/// What the variables of the Hugging Face tools say, read as huggingface_hub reads them.
struct Environment {
  std::string endpoint = "https://huggingface.co";  ///< HF_ENDPOINT, without a slash at its end
  std::filesystem::path cache;       ///< HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub
  std::optional<std::string> token;  ///< HF_TOKEN, else the file HF_TOKEN_PATH (HF_HOME/token); never printed
  bool offline = false;              ///< HF_HUB_OFFLINE
  long stall_seconds =
      10;  ///< HF_HUB_DOWNLOAD_TIMEOUT: without a byte for so long a connection counts as cut
};

/// The value of a variable, or nullptr.
using ReadVariable = std::function<const char*(const char* name)>;

/// Throws Error for an endpoint that is no http(s) URL, a token that can't stand in a header, and where the
/// cache's place isn't known (neither HF_HOME, XDG_CACHE_HOME nor HOME is set).
Environment read_environment(const ReadVariable& read);

/// The process's own.
Environment read_environment();

}  // namespace lorikeet::hub
