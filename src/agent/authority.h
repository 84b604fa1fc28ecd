// The egress gateway's certificate authority in the guest. Its places are fixed, so that a template can point every program there
// before any authority exists, and each holds a block of one size: a load changes bytes of one page and no metadata, which is what a
// create can afford. docs/network.md says which program reads what.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space::agent {

inline constexpr std::size_t kAuthorityBlock = 4096;                                   // templates/base/customize leaves room for it
inline constexpr std::size_t kLongestAuthority = 3584;                                 // bytes of PEM
inline constexpr const char* kAuthorityBundle = "/etc/ssl/certs/ca-certificates.crt";  // Debian's; its end is the block
inline constexpr const char* kAuthorityFile = "/usr/local/share/ca-certificates/space-egress.crt";  // update-ca-certificates(8) reads it

// The block: a comment, the certificate, line ends up to the size.
std::string authority_block(std::string_view pem);

// Writes both files below `root` ("" in a guest). A bundle that has no block (update-ca-certificates rewrote it, another
// distribution) gets one at its end unless it holds the certificate already; one that is missing is made. Follows no link. Not
// synced: the next load writes again. Blocks for less than a millisecond.
Result<> install_authority(const std::string& root, std::string_view pem);

}  // namespace space::agent
