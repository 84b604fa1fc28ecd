// TLS certificates of a server that was given a domain and no certificate: an authority of its own, and under it one certificate
// for the domain and every name right below it. Clients have to trust the authority's file.
//
//   <folder>/ca.crt, ca.key          made once; good for that domain alone (name constraints, RFC 5280 section 4.2.1.10)
//   <folder>/server.crt, server.key  made anew when they are of another domain, or have less than 30 days
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace space::api {

struct CertificateFiles {
  std::filesystem::path authority, certificate, key;
};

// Makes what is missing. Blocks. Keys have mode 0600.
Result<CertificateFiles> own_certificates(const std::filesystem::path& folder, const std::string& domain);

// "sbx.example.org": labels of letters, digits and dashes, at least one dot; lower case.
bool is_domain(std::string_view text);

}  // namespace space::api
