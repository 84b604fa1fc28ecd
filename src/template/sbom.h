// The bill of materials of a template: CycloneDX 1.5 as JSON (ECMA-424), made of its lock and of the record of its kernel.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "template/lock_file.h"
#include "template/release.h"

namespace space::tmpl {

struct KernelPackage {
  std::string name, version, sha256;  // of the .deb; 64 hex
};

// The same release gives the same text. What was published out of a sandbox is said to be incomplete: what ran inside may have
// installed anything.
json::object bill_of_materials(const Release& release, const LockFile& lock, const KernelPackage& kernel);

// Reads the lock and the kernel's record from the store. Errors: template_lock, template_corrupt, those of files.
Result<json::object> bill_of_materials(const Release& release);

}  // namespace space::tmpl
