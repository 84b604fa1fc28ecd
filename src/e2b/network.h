// E2B's network options as an egress policy of SPACE. E2B decides by connection: what is allowed wins over what is denied, and
// everything else passes. So a sandbox without options is open, and one that denies everything has a list of what it may reach.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace space::e2b {

tl::unexpected<Error> invalid_network(std::string message);
// A name, or "*." in front of one for every name below it.
bool covers(std::string_view pattern, std::string_view name);

// The document that the store and the gateway take: {"policy":{…},"credentials":[…]}. `network` has allowOut and denyOut; `internet` false
// denies everything that is not allowed. invalid_argument for what E2B refuses and for what this server cannot express. `bindings`:
// credentials that the header rules became; a name that one of them covers is read, not passed through.
Result<std::string> egress_document(const json::object& network, bool internet, const json::array& bindings);

}  // namespace space::e2b
