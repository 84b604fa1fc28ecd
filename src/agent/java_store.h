// Java's trust store in the guest, where the template has one: Debian's ca-certificates-java writes a JKS keystore, which is no text that
// a certificate could be appended to. What the guest keeps there may have been written by anybody, so it is bounded and read strictly;
// a store of another form (PKCS#12) is left alone.
// Format: sun.security.provider.JavaKeyStore of OpenJDK. Big-endian: magic, version 2, number of entries; an entry is its kind, alias,
// time and certificate (a key has a chain of them); at the end SHA-1 over the password and all before.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space::agent {

inline constexpr const char* kJavaStore = "/etc/ssl/certs/java/cacerts";  // what Debian's cacerts of every Java leads to
inline constexpr std::size_t kJavaEntry = 1024;  // the authority's entry is this long, or a multiple: certificates differ by some bytes

// `store` with this certificate (DER) as the one authority of a gateway: an earlier one, of ours or of update-ca-certificates, goes. As it
// was when it has that already. Of one length for all certificates of a gateway, once there is one of ours. unsupported/java_store_unknown
// when it cannot be read.
Result<std::string> java_store_with(std::string_view store, std::string_view der);

// Does that to the file below `root` ("" in a guest); nothing without one. When the length is the same it is written
// from the first byte that differs, else the file is replaced, with its mode. Follows no link at the end of the path. Not synced: the next
// load writes again. Blocks for some milliseconds.
Result<> install_java_authority(const std::string& root, std::string_view pem);

}  // namespace space::agent
