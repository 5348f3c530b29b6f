#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace lorikeet::text::jinja {

/// Parses a template. Throws Error naming line and column for what isn't the template language, what isn't
/// supported of it (inheritance, imports, autoescape, * and ** of calls), and nesting deeper than 100 levels.
Ast parse(std::string_view source);

}  // namespace lorikeet::text::jinja
