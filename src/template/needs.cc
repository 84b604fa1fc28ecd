#include "template/needs.h"

#include <fmt/format.h>

namespace space::tmpl {
namespace {
constexpr std::size_t kMostNamed = 5;
}

std::set<std::string> base_keys(const std::vector<Need>& needs) {
  std::set<std::string> keys;
  for (const Need& need : needs)
    if (!need.base_key.empty()) keys.insert(need.base_key);
  return keys;
}

Result<> check_unneeded(std::string_view reference, std::string_view digest, const std::vector<Need>& needs) {
  std::string named;
  std::size_t count = 0;
  for (const Need& need : needs) {
    if (need.template_digest != digest || ++count > kMostNamed) continue;
    named += fmt::format("{}{} {}", named.empty() ? "" : ", ", need.kind, need.id);
    if (!need.detail.empty()) named += fmt::format(" ({})", need.detail);
  }
  if (count == 0) return {};
  if (count > kMostNamed) named += fmt::format(" and {} more", count - kMostNamed);
  return fail(ErrorKind::conflict, "template_in_use",
              fmt::format("{} is the last name of a template that is needed by {}", reference, named),
              "delete those first, or give the template another tag before this one goes");
}

}  // namespace space::tmpl
