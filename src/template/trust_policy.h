// Which templates a server may load: what `space serve --trust FILE` says (docs/supply.md). Without a file: any.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "template/signing_key.h"

namespace space::tmpl {

struct TrustPolicy {
  struct Signer {
    std::string name;  // for people
    PublicKey key;
    std::vector<std::string> templates;  // names, or beginnings that end with '*'; empty: every
    bool may_sign(std::string_view template_name) const;
  };
  bool allow_unsigned = true;
  bool allow_published = true;                // templates that this server made out of sandboxes, on trusted ones
  std::vector<std::filesystem::path> stores;  // canonical folders that releases may come from; empty: the server's, whichever it is
  std::vector<Signer> signers;                // empty: whoever signed, as long as the signature is right
};

// Strict: what is not known, named twice or of a wrong type is invalid_argument/trust_policy, by line or key; so is a file that others
// than root and the caller can write.
Result<TrustPolicy> read_trust_policy(const std::filesystem::path& file);

}  // namespace space::tmpl
