// Any bytes as a config file, the lines after a NUL as overrides: of what is accepted, the printed config
// loads to equal settings.
#include <string>
#include <vector>

#include "base/strings.h"
#include "config/config.h"
#include "fuzz.h"

using namespace lorikeet;
using namespace lorikeet::config;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::view(data, size);
  const std::size_t nul = input.find('\0');
  std::vector<std::string> overrides;
  if (nul != std::string_view::npos) overrides = split(input.substr(nul + 1), '\n');
  const auto settings =
      fuzz::accepted([&] { return parse_settings(input.substr(0, nul), "input.yaml", overrides); });
  if (!settings) return 0;
  const std::string yaml = to_yaml(*settings);
  const Settings again = parse_settings(yaml, "printed.yaml");
  fuzz::require(to_yaml(again) == yaml);
  fuzz::require(differences(*settings, again, FingerprintScope::kAll).empty());
  return 0;
}
