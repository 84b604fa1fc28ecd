// What the gateway would do with a request, and why, without sending anything: by the same functions that decide for real.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "egress/settings.h"

namespace space::egress {

// {"allowed","rule","reason","handling","name","address","port","credential","steps":[…]}. `url`: http://, https:// or tcp://host:port.
// `allowed_ranges`: what the operator permits; `own`: the host's addresses.
Result<json::object> explain(const Settings& settings, std::string_view method, std::string_view url,
                             const std::vector<Cidr>& allowed_ranges, const std::set<Address>& own);

}  // namespace space::egress
