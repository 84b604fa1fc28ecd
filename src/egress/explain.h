// What the gateway would do with a request, and why, without sending anything: by the same functions that decide for real.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "egress/settings.h"

namespace space::egress {

// {"allowed","rule","reason","handling","name","address","port","credential","steps":[…]}. `url`: http://, https:// or tcp://host:port.
Result<json::object> explain(const Settings& settings, std::string_view method, std::string_view url, const std::vector<Cidr>& allowed_ranges);

}  // namespace space::egress
