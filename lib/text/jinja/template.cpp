#include "text/jinja/template.h"

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

void check_date(const std::string& date) {
  bool valid = date.size() == 10;
  for (std::size_t i = 0; valid && i < date.size(); ++i)
    valid = i == 4 || i == 7 ? date[i] == '-' : date[i] >= '0' && date[i] <= '9';
  if (!valid)
    throw Error("[chat_template] expected a date such as 2024-07-26, got '" + escape_control(date) + "'");
}

}  // namespace

Template::Template(std::string_view source) : ast_(std::make_unique<const Ast>(checked(source))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

MarkedText Template::render(const std::vector<std::pair<std::string, Value>>& variables,
                            const RenderOptions& options) const {
  check_date(options.date);
  return Interpreter(*ast_, variables, options.limits, options.date).run();
}

bool Template::has_generation() const { return ast_->has_generation; }

}  // namespace lorikeet::text::jinja
