// One canonical form of a host name. Policy, resolution, dialling, the certificate check and the choice of a credential all use
// this one form, so that no two of them can mean different hosts by the same bytes.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space::egress {

// Lower case ASCII (IDNA 2008 through libidn2), no trailing dot, 1 to 253 bytes, labels of 1 to 63 of [a-z0-9-_], no label that
// begins or ends with '-'. Refused (invalid_name): percent escapes, white space and control bytes, empty labels, brackets, a
// port, and everything that some resolver would read as an address: "127.1", "0x7f.0.0.1", "2130706433", "1.2.3.4.".
Result<std::string> canonical_name(std::string_view text);

// A name of a rule: canonical, or "*." and a canonical name of at least two labels. "*" stands for one or more labels.
Result<std::string> canonical_pattern(std::string_view text);

}  // namespace space::egress
