#include "text/jinja/template.h"

#include <chrono>

#include "base/error.h"
#include "base/strings.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace lorikeet::text::jinja {
namespace {

constexpr std::size_t kMaxSource = std::size_t{1} << 20;

Ast checked(std::string_view source) {
  if (source.size() > kMaxSource) throw Error("[chat_template] expected a template of at most 1 MiB");
  if (!is_utf8(source)) throw Error("[chat_template] expected a template in UTF-8");
  return parse(source);
}

bool is_date(const std::string& date) {
  bool digits = date.size() == 10;
  for (std::size_t i = 0; digits && i < date.size(); ++i)
    digits = i == 4 || i == 7 ? date[i] == '-' : date[i] >= '0' && date[i] <= '9';
  if (!digits) return false;
  const std::chrono::year_month_day day{
      std::chrono::year(std::stoi(date.substr(0, 4))),
      std::chrono::month(static_cast<unsigned>(std::stoi(date.substr(5, 2)))),
      std::chrono::day(static_cast<unsigned>(std::stoi(date.substr(8, 2))))};
  return day.ok();
}

}  // namespace

void require_date(const std::string& date) {
  if (!is_date(date))
    throw Error("[chat_template] expected a date such as 2024-07-26, got '" + escape_control(date) + "'");
}

Template::Template(std::string_view source) : ast_(std::make_unique<const Ast>(checked(source))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

MarkedText Template::render(const std::vector<std::pair<std::string, Value>>& variables,
                            const RenderOptions& options) const {
  require_date(options.date);
  return Interpreter(*ast_, variables, options.limits, options.date).run();
}

bool Template::has_generation() const { return ast_->has_generation; }

}  // namespace lorikeet::text::jinja
