// Making one base: boots the template's kernel on an empty overlay, waits for the agent, warms the guest up, freezes its user
// processes and saves. Private to this folder.
#pragma once

#include <filesystem>
#include <string>

#include "base/async.h"
#include "template/release.h"
#include "vmm/driver.h"

namespace space::tmpl {

struct BaseOrder {
  std::string key;
  Release release;
  vmm::Size size;
  std::filesystem::path folder;  // empty; holds the whole base afterwards, the manifest included
};

// Some seconds to a minute. The VM it uses is gone when it returns, whatever happened.
Task<> make_base(vmm::Driver& driver, BlockingPool& pool, BaseOrder order);

}  // namespace space::tmpl
