// Who stands on a template's content and on a base: sandboxes, whatever their state, and checkpoints.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::tmpl {

struct Need {
  std::string kind;  // "sandbox" or "checkpoint"
  std::string id;
  std::string detail;  // its state, or its name
  std::string template_digest, base_key;
};

std::set<std::string> base_keys(const std::vector<Need>& needs);

// Nothing when nobody needs the content `digest`; else conflict/template_in_use, which names who does. `reference`: as it was asked for.
Result<> check_unneeded(std::string_view reference, std::string_view digest, const std::vector<Need>& needs);

}  // namespace space::tmpl
