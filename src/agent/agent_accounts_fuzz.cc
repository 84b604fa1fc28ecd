// Account files that a hostile guest wrote, and Range headers that anybody sent: neither may crash, hang or give nonsense.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "agent/accounts.h"
#include "agent/range.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace space::agent;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const Accounts accounts(all.substr(0, size / 2), all.substr(size / 2));
  const auto user = accounts.find(all.substr(0, all.find(':')));
  if (user) {
    const Identity identity = accounts.identity(*user);
    if (identity.uid == static_cast<uid_t>(-1) || identity.groups.empty() || identity.groups.size() > 256 || user->home.empty())
      std::abort();
  }
  if (!accounts.find("root")) std::abort();
  if (const auto range = parse_range(all, 1000); range && range->satisfiable && (range->length == 0 || range->first + range->length > 1000))
    std::abort();
  return 0;
}
