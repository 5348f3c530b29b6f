#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "hub/environment.h"
#include "hub/http.h"
#include "hub/repository.h"

namespace lorikeet::hub {

/// What a status other than success means for `repository`, and what to do: 401, 403 and 404 by the Hub's
/// X-Error-Code where it gives one, anything else with its text. `what` was asked for ("the list of files").
Error server_error(const HttpAnswer& answer, const Repository& repository, const std::string& what,
                   const Environment& environment);

/// True for the statuses that a later attempt may overcome: 408, 429, 500, 502, 503, 504.
bool is_temporary(long status);

/// The seconds after which the server wants to be asked again: Retry-After (a number or a date), or t of the
/// Hub's RateLimit header. Nothing where it says nothing.
std::optional<double> seconds_to_wait(const HttpAnswer& answer);

}  // namespace lorikeet::hub
