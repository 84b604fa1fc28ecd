#include "agent/agent.h"

namespace space::agent {

Result<User> Agent::find_user(std::string_view name) {
  const auto known = accounts.current();
  if (!name.empty()) return known->find(name);
  auto user = known->find(settings.default_user);
  return user ? std::move(user) : known->find("root");
}

}  // namespace space::agent
