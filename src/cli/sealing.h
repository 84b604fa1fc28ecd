// Seals a credential to the gateway's key, so that the server's api role never sees it (docs/egress.md, "Credentials").
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space::cli {

// `key`: base64 of 32 bytes. invalid_argument/bad_sealing_key. The secret is the caller's to wipe.
Result<std::string> seal_credential(std::string_view key, std::string_view tenant, std::string_view name, std::string_view secret);

}  // namespace space::cli
