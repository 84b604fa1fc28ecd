#pragma once

#include <string>

#include "http/message.h"

namespace space::http {

// The token of "Authorization: Bearer …" (RFC 6750, section 2.1; the scheme in any case), "" when there is none.
std::string bearer(const Headers& headers);

}  // namespace space::http
