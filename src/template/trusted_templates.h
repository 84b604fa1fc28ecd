// The door between the store and whoever loads from it: a release goes through when the policy trusts its store and its signer, and
// every file is what was signed. It is asked before anything is made of a release: no base, no VM, no copy.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "template/release.h"
#include "template/trust_policy.h"

namespace space::tmpl {

class TrustedTemplates {
 public:
  TrustedTemplates(const TemplateStore& store, TrustPolicy policy) : store_(store), policy_(std::move(policy)) {}

  // As TemplateStore::resolve, and refuses by name what may not be loaded (unsupported/…): template_unsigned, template_signature,
  // template_signer_untrusted, template_altered, template_store_untrusted. Hashes the files at the first call and when one of them
  // changed since; any other call costs some stat(2). Blocks; from any thread.
  Result<Release> resolve(std::string_view reference);
  // Templates made out of sandboxes are refused by the policy: said before one is made.
  Result<> may_publish() const;

 private:
  Result<> check(const Release& release);
  Result<> check_store(const Release& release) const;
  Result<> check_signature(const Release& release);

  const TemplateStore& store_;
  const TrustPolicy policy_;
  std::mutex mutex_;                            // held while files are hashed: others want the same answer
  std::map<std::string, std::string> checked_;  // name:tag → identity of the files that were found right
  std::set<std::string> told_;                  // unsigned ones that the log has
};

}  // namespace space::tmpl
